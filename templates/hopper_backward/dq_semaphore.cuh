#include "common/math.cuh"

// Additions to global memory in an order that doesn't depend on how fast thread blocks are. Blocks of keys that add to the same
// tiles have an order: at each tile, those ahead add first. All go through their tiles in ascending order, and each has a
// number in memory that says how far it is: everything below has been added, by it and by those ahead of it.

__device__ __forceinline__ int load_relaxed(const int* address) {
    int x;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
    return x;
}

__device__ __forceinline__ void store_relaxed(int* address, int x) {
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(address), "r"(x) : "memory");
}

/// What the warp has done comes before what its lanes store from now on, and what other thread blocks did before they stored what has
/// been loaded comes before what the warp does now.
__device__ __forceinline__ void order_memory() {
    __syncwarp();
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/// The semaphore of dQ, as FlashAttention's deterministic backward has it: the place of a warp in that order. Its lanes
/// call together.
struct DqSemaphore {
    static constexpr int DONE = 0x7fffffff;  // by the block itself: who finds it looks at the next

    int* own;         // the number of the warp and its block; those of the blocks ahead follow, all of them 0 in the beginning
    int ahead;        // how many there are
    int nearest = 1;  // of them that may not be done
    int granted = 0;  // the blocks ahead have added everything below

    /// Everything below the tile has been added, which is told; waits until all blocks ahead have added to it, or won't. They are asked
    /// while what was added is on its way: one fence orders both.
    __device__ __forceinline__ void take_turn(int tile) {
        const int known = min(tile, granted);
        const int number = granted > tile ? DONE : ask();
        order_memory();
        tell(known);
        if (granted <= tile) take(number);
        if (granted <= tile) {
            do take(ask());
            while (granted <= tile);
            order_memory();
        }
        if (known < tile) tell(tile);  // there was nothing to add to what is below: it is done when it is for those ahead
    }

    /// Nothing more is added.
    __device__ __forceinline__ void leave() const {
        order_memory();
        tell(DONE);
    }

private:
    __device__ __forceinline__ void tell(int number) const {
        if (threadIdx.x % 32 == 0) store_relaxed(own, number);
    }

    /// Each lane another block's number.
    __device__ __forceinline__ int ask() const {
        const int place = nearest + threadIdx.x % 32;
        return place <= ahead ? load_relaxed(own + place) : DONE;
    }

    /// What is known by these numbers: the nearest block that isn't done speaks for those ahead of it.
    __device__ __forceinline__ void take(int number) {
        const unsigned working = __ballot_sync(~0u, number != DONE);
        if (working != 0)
            granted = __shfl_sync(~0u, number, __ffs(working) - 1);
        else if ((nearest += 32) > ahead)
            granted = DONE;
    }
};
