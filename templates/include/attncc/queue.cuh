#include "attncc/math.cuh"

// Additions to global memory in an order that doesn't depend on how fast thread blocks are. Blocks of keys that add to the same
// tiles stand in a queue: at each tile, those ahead add first. All go through their tiles in ascending order, and each has a
// number in memory that says how far it is: everything below has been added.

__device__ __forceinline__ int load_relaxed(const int* address) {
    int x;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
    return x;
}

/// What other thread blocks stored with `store_release`, and all that they did before, comes before what this thread does now.
__device__ __forceinline__ void acquire() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

__device__ __forceinline__ void store_release(int* address, int x) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(address), "r"(x) : "memory");
}

/// The place of a warp in such a queue. Its lanes call together.
struct Queue {
    static constexpr int DONE = 0x7fffffff;

    int* own;         // the number of the warp and its block; those of the blocks ahead follow, all of them 0 in the beginning
    int ahead;        // how many blocks ahead may not be done
    int granted = 0;  // the blocks ahead have added everything below

    /// Everything below `next` has been added.
    __device__ __forceinline__ void tell(int next) const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) store_release(own, next);
    }

    /// Waits until all blocks ahead have added to the tile, or won't.
    __device__ __forceinline__ void wait_for_turn(int tile) {
        if (granted > tile) return;
        do {
            int least = DONE, last = 0;
#pragma unroll 1
            for (int place = 1 + threadIdx.x % 32; place <= ahead; place += 32) {
                const int number = load_relaxed(own + place);
                least = min(least, number);
                if (number != DONE) last = place;
            }
            granted = __reduce_min_sync(~0u, least);
            ahead = __reduce_max_sync(~0u, last);
        } while (granted <= tile);
        acquire();
    }
};
