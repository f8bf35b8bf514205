// Barriers in shared memory (mbarrier, sm_90): a full one counts the bytes that TMA brings, an empty one the warps that
// have read a stage. Named barriers join the warps of a warpgroup.

__device__ __forceinline__ void barrier_init(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/// Makes what `barrier_init` wrote visible to TMA.
__device__ __forceinline__ void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// One arrival for the warp. Its lanes have left what the barrier guards: what they did there together (wgmma,
/// ldmatrix) or before a barrier of theirs is done, and what the producer wrote this lane alone has read.
__device__ __forceinline__ void warp_arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/// One arrival for those lanes that arrive; whether it was the phase's last one.
__device__ __forceinline__ bool last_arrival(unsigned barrier, bool arrives) {
    unsigned pending;  // before
    asm volatile(
        "{ .reg .pred p;\n"
        ".reg .b64 state;\n"
        "setp.ne.u32 p, %2, 0;\n"
        "mov.b64 state, 0;\n"
        "@p mbarrier.arrive.shared::cta.b64 state, [%1];\n"
        "mbarrier.pending_count.b64 %0, state; }"
        : "=r"(pending) : "r"(barrier), "r"((unsigned)arrives)
        : "memory");
    return arrives & (pending == 1);
}

/// Whether the barrier's phase of this parity is over.
__device__ __forceinline__ bool barrier_test(unsigned barrier, unsigned parity) {
    unsigned over;
    asm volatile(
        "{ .reg .pred over;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over; }"
        : "=r"(over) : "r"(barrier), "r"(parity)
        : "memory");
    return over;
}

/// Whether the lane is the one of its warp that asks TMA: the compiler knows that it is alone.
__device__ __forceinline__ bool elected_lane() {
    unsigned elected;
    asm volatile("{ .reg .pred elected; elect.sync _|elected, 0xffffffff; selp.u32 %0, 1, 0, elected; }" : "=r"(elected));
    return elected;
}

/// Arrives; the phase then also waits for this many bytes of TMA.
__device__ __forceinline__ void barrier_arrive_expecting(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Waits for the end of the barrier's phase of this parity; one that has just been initialised is past parity 1.
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{ .reg .pred done; WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @done bra DONE; bra WAIT; DONE: }"
        ::"r"(barrier), "r"(parity) : "memory");
}

/// Named barriers 1 to 15; 0 is __syncthreads. `threads` counts those that wait.
__device__ __forceinline__ void named_wait(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Arrives at the named barrier without waiting.
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// A position in a ring of stages. Its parity flips each turn: from 0 for consumers, from 1 for a producer (all free).
template <int STAGES>
struct Ring {
    unsigned parity;
    int stage = 0;

    __device__ __forceinline__ explicit Ring(unsigned parity) : parity(parity) {}

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/// A position in a ring of stages in one register, where dividing costs less than another.
template <int STAGES>
struct RingCounter {
    unsigned turn = 0;

    __device__ __forceinline__ int stage() const { return turn % STAGES; }
    __device__ __forceinline__ unsigned parity() const { return turn / STAGES % 2; }
};
