#include "common/math.cuh"

// A counter of thread blocks that have come to merge what they found.

/// atomicAdd. What the block has written before its last barrier is there for whoever counts later, and the other way round.
__device__ __forceinline__ unsigned count_more(unsigned* counter, unsigned more) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(more) : "memory");
    return before;
}

__device__ __forceinline__ unsigned counted(const unsigned* counter) {
    unsigned count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}
