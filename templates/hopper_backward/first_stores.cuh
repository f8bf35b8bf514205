#include "common/math.cuh"

// A sum in global memory that needs no zeros: the warpgroup that comes first to a tile of it stores, the others add. A word of the
// tile says who has come, 0 in the beginning: four bits for each part of its columns, of which one says that a warpgroup stores, and
// three count its warps that have.
//
// What is added comes behind what was stored. A warp's stores come before its `publish`: `__syncwarp` orders them before the lane
// whose release makes them visible with the count. Who finds that all four have stored has acquired it; `__syncwarp` hands that on to
// the lanes that add.
//
// Nobody waits for good. A warpgroup that has claimed a tile publishes it without waiting for other thread blocks. Its warps need
// each other: for `claim`, and for products, which take all four. But no warp of it can be held up at an earlier tile: the first warp
// has passed all waits there, and the others wait for the same words and barriers, which don't go back. So `claim` comes behind
// whatever else the warpgroup waits for, such as dS of the other block of a pair.

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

__device__ __forceinline__ void store_four(float* address, const float (&x)[4]) {
    *(float4*)address = float4{x[0], x[1], x[2], x[3]};
}

/// Who has come to a part of a tile before a warpgroup. Its lanes call together.
struct Comers {
    static constexpr int NONE = 0, STORING = 1, STORED = 2;
    static constexpr int BARRIER = 5, BITS = 4, CLAIM = 1, ONE_WARP = 2, ALL = CLAIM + 4 * ONE_WARP;

    int before = STORED;

    /// Whether one has stored, who need not be asked again.
    static __device__ __forceinline__ bool stored(const int* word, int part) { return of_part(published(word), part) == ALL; }

    /// As late as the answer's way allows: whoever comes next waits from now on.
    __device__ __forceinline__ void claim(int* word, int part) {
        int found = 0;
        if (threadIdx.x % 128 == 0) found = of_part(take_bits(word, CLAIM << BITS * part), part);
        found = __shfl_sync(~0u, found, 0);
        before = warpgroup_count(BARRIER, threadIdx.x % 128 < (found == 0 ? NONE : found == ALL ? STORED : STORING));
    }

    /// If a warpgroup is storing, until it has stored.
    __device__ __forceinline__ void wait(const int* word, int part) {
        while (__any_sync(~0u, before == STORING)) before = of_part(published(word), part) == ALL ? STORED : STORING;
        __syncwarp();
    }

    /// Whether the warpgroup is the first, who stores.
    __device__ __forceinline__ bool none() const { return __any_sync(~0u, before == NONE); }

    /// The warp has stored all that it has, if the warpgroup stores.
    __device__ __forceinline__ void publish(int* word, int part) const {
        __syncwarp();
        publish_more(word, ONE_WARP << BITS * part, before == NONE && threadIdx.x % 32 == 0);
    }

private:
    static __device__ __forceinline__ int of_part(int word, int part) { return word >> BITS * part & (1 << BITS) - 1; }
};
