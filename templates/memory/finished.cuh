#include "common/math.cuh"

// A kernel that begins before the one ahead of it is done (programmatic dependent launch), and waits for what it needs of it:
// the one ahead counts what is finished.
//
// Nobody waits for good. Blocks of a launch behind are given room only when all blocks of this one have begun, each by
// `let_others_begin`, or have ended: who counts has its multiprocessor by then, and waits for nothing that comes behind.
//
// What has been added is seen. A warp's additions come before its `count_finished`: `__syncwarp` orders those of all lanes
// before the lane that counts, whose release makes them visible with the count. Who finds the whole count acquires it, and
// `__syncthreads` hands that on to the thread block.

/// Those that are launched behind this kernel may begin where there is room: they know what to wait for.
__device__ __forceinline__ void let_others_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

/// The kernel ahead is done, and all that it wrote is visible.
__device__ __forceinline__ void wait_for_kernel_ahead() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Adds to a count. What the warp has done comes before. Its lanes call together.
__device__ __forceinline__ void count_finished(int* count, int more) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(count), "r"(more) : "memory");
}

/// Waits for a count; what was done before comes before what this thread does now.
__device__ __forceinline__ void wait_for_count(const int* count, int all) {
    while (true) {
        int found;
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(count) : "memory");
        if (found >= all) return;
        __nanosleep(500);
    }
}

/// Waits until all has been added to the rows of these heads of q, of all sequences. A thread block calls together; one of its
/// threads looks, since many that do slow down the counting.
template <class Params>
__device__ __forceinline__ void wait_for_heads(const Params& params, int first, int last) {
    if (params.finished == nullptr) return;
    const int behind = threadIdx.x == 0 ? last / params.group + 1 : 0;
#pragma unroll 1
    for (int head = first / params.group; head < behind; ++head) wait_for_count(params.finished + head, params.dq_consumer_warps);
    __syncthreads();
}
