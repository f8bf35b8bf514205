#include "memory/barrier.cuh"

/// Two warpgroups start their products by turns, so that one exponentiates while the other multiplies (Shah et al.,
/// "FlashAttention-3", 2024, section 3.1). Each waits for its turn at a named barrier, at which the other arrives when its own
/// ends. Both have the same tiles, and so as many turns.
struct PingPong {
    static constexpr int BARRIER = 8, THREADS_HERE = 256;  // behind those of warpgroup.cuh and values_transposed.cuh

    static __device__ __forceinline__ void take(int warpgroup) { named_wait(BARRIER + warpgroup, THREADS_HERE); }
    static __device__ __forceinline__ void give(int warpgroup) { named_arrive(BARRIER + 1 - warpgroup, THREADS_HERE); }

    /// Before the first product and after the last one: the turn that the first begins with is over in the end.
    static __device__ __forceinline__ void begin(int warpgroup) {
        if (warpgroup == 1) give(warpgroup);
    }
    static __device__ __forceinline__ void end(int warpgroup) {
        if (warpgroup == 0) take(warpgroup);
    }
};
