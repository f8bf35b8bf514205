// Programmatic dependent launch: blocks may begin before the kernel ahead of them on the stream is over. What they do until then,
// they do from `Params` alone: the kernel ahead may write all memory that this one reads, and read all that this one writes.
//
// A kernel ahead that knows nothing of this is waited for like any other. Kernels behind this one may begin when all its blocks
// have waited, or ended: by then whatever came before is over. So no more than two kernels of a stream are ever on the GPU, and a
// kernel behind that waits for this one alone has waited for all. That takes one block which waits: one with work does.

// A plain load: the read-only path is for memory that nobody writes as long as the kernel is there, which begins with its wait.
#define __ldg(address) (*(address))

/// Returns when the kernel ahead is over and all that it wrote is visible to the calling thread: at once, from the second time on.
/// Lets those behind begin. All threads must call.
__device__ __forceinline__ void await_kernel_ahead() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// The same where lengths are in memory, which tell a block's keys, or SCALES of a cache. Else the kernel ahead is at work until a
/// block knows what to copy first.
template <bool SCALES, class Params>
__device__ __forceinline__ void await_lengths(const Params& params) {
    const bool packed = params.cu_seqlens_q != nullptr || params.cu_seqlens_kv != nullptr;
    if (SCALES || packed || params.kv_lens != nullptr || params.q_offsets != nullptr) await_kernel_ahead();
}
