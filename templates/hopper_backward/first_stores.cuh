#include "common/math.cuh"
#include "scheduler/row_blocks.cuh"

// A sum in global memory that needs no zeros: the warpgroup that comes first to a tile of it stores, the others add. A word of the
// tile says who has come, 0 in the beginning: a bit that a warpgroup stores, and above it how many of its warps have.
//
// What is added comes behind what was stored. A warp's stores come before its `publish`: `__syncwarp` orders them before the lane
// whose release makes them visible with the count. Who finds that all four have stored has acquired it; `__syncwarp` hands that on to
// the lanes that add.
//
// Nobody waits for good. A warpgroup that has claimed a tile publishes it without waiting for other thread blocks. Its warps need
// each other: for `claim`, and for products, which take all four. But no warp of it can be held up at an earlier tile: the first warp
// has passed all waits there, and the others wait for the same words and barriers, which don't go back. So `claim` comes behind
// whatever else the warpgroup waits for. There are no clusters: dS of another block would be such a wait.

__device__ __forceinline__ int take_bits(int* word, int bits) {
    int before;
    asm volatile("atom.acquire.gpu.global.or.b32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(bits) : "memory");
    return before;
}

/// By those threads that publish. A branch around it would cost registers: ptxas then doubts that the warp goes on together.
__device__ __forceinline__ void publish_more(int* word, int more, bool publishes) {
    asm volatile(
        "{ .reg .pred publishes;\n"
        "setp.ne.s32 publishes, %2, 0;\n"
        "@publishes red.release.gpu.global.add.s32 [%0], %1; }" ::"l"(word), "r"(more), "r"((int)publishes) : "memory");
}

__device__ __forceinline__ int published(const int* word) {
    int found;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(word) : "memory");
    return found;
}

/// Waits for all threads of a warpgroup at a named barrier; how many said yes.
__device__ __forceinline__ int warpgroup_count(int barrier, bool yes) {
    int count;
    asm volatile(
        "{ .reg .pred yes;\n"
        "setp.ne.s32 yes, %2, 0;\n"
        "bar.red.popc.u32 %0, %1, 128, yes; }" : "=r"(count) : "r"(barrier), "r"((int)yes) : "memory");
    return count;
}

/// Who has come to a tile of dQ before a warpgroup, which calls together.
struct FirstStores {
    static constexpr int NONE = 0, STORING = 1, STORED = 2;
    static constexpr int BARRIER = 5, CLAIM = 1, ONE_WARP = 2, ALL = CLAIM + 4 * ONE_WARP;  // in the word

    int before;

    /// What the producer tells of a tile: its first row block, and whether nobody need ask, for it has been stored, or begins with zeros.
    /// The producer has time to ask. What orders memory for it does so for who adds, too, by way of all barriers between.
    template <class Params>
    static __device__ __forceinline__ int place(const Params& params, int row_block) {
        return 2 * row_block + (params.dq_stored == nullptr || published(word(params, row_block)) == ALL);
    }
    static __device__ __forceinline__ int row_block(int place) { return place >> 1; }

    /// As late as the answer's way allows: whoever comes next waits from now on.
    template <class Params>
    __device__ __forceinline__ void claim(const Params& params, int place) {
        if (is_stored(place)) return;
        int found = 0;
        if (threadIdx.x % 128 == 0) found = take_bits(word(params, row_block(place)), CLAIM);
        found = __shfl_sync(~0u, found, 0);
        before = warpgroup_count(BARRIER, threadIdx.x % 128 < (found == 0 ? NONE : found == ALL ? STORED : STORING));
    }

    /// Whether the warpgroup stores. Else it adds: if another is storing, behind that.
    template <class Params>
    __device__ __forceinline__ bool stores(const Params& params, int place) {
        if (is_stored(place)) return false;
        while (__any_sync(~0u, before == STORING))
            before = published(word(params, row_block(place))) == ALL ? STORED : STORING;
        __syncwarp();
        return __any_sync(~0u, before == NONE);
    }

    /// The warp has stored all that it has, if the warpgroup stores.
    template <class Params>
    __device__ __forceinline__ void publish(const Params& params, int place) const {
        if (is_stored(place)) return;
        __syncwarp();
        publish_more(word(params, row_block(place)), ONE_WARP, before == NONE && threadIdx.x % 32 == 0);
    }

private:
    static __device__ __forceinline__ bool is_stored(int place) { return place & 1; }

    template <class Params>
    static __device__ __forceinline__ int* word(const Params& params, int row_block) {
        return params.dq_stored + row_block / ALIGNED_BLOCKS;
    }
};
