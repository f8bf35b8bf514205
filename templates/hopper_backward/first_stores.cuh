#include "common/math.cuh"

// A sum in global memory that needs no zeros: the warp that comes first to a part of it stores, the others add. A word says of the
// part who has come: two bits, from bit 2 * place on, and 0 in the beginning.
//
// What is added comes behind what was stored. The lanes' stores come before `publish`: `__syncwarp` orders them before the lane
// whose release makes them visible with STORED. Who finds STORED has acquired it; `__syncwarp` hands that on to the lanes that add.
//
// Nobody waits for good. From `claim` to `publish` a warp waits for its own products and stores: for no barrier that another thread
// block, or another warp, must arrive at. So whoever waits for STORED waits for a warp that runs, and that waits for nobody.

__device__ __forceinline__ int take_bits(int* word, int bits) {
    int before;
    asm volatile("atom.acquire.gpu.global.or.b32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(bits) : "memory");
    return before;
}

/// By those threads that publish. A branch around it would cost registers: ptxas then doubts that the warp goes on together.
__device__ __forceinline__ void publish_bits(int* word, int bits, bool publishes) {
    asm volatile(
        "{ .reg .pred publishes;\n"
        "setp.ne.s32 publishes, %2, 0;\n"
        "@publishes red.release.gpu.global.or.b32 [%0], %1; }" ::"l"(word), "r"(bits), "r"((int)publishes) : "memory");
}

__device__ __forceinline__ int published_bits(const int* word) {
    int bits;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(bits) : "l"(word) : "memory");
    return bits;
}

__device__ __forceinline__ void store_four(float* address, const float (&x)[4]) {
    *(float4*)address = float4{x[0], x[1], x[2], x[3]};
}

/// Who has come to a part of a sum before a warp. Its lanes call together.
struct Comers {
    static constexpr int CLAIMED = 1, STORED = 2;

    int before = CLAIMED | STORED;  // in lane 0 the bits that the warp has found

    /// As late as the answer's way allows: whoever comes next waits from now on.
    __device__ __forceinline__ void claim(int* word, int place) {
        if (threadIdx.x % 32 == 0) before = take_bits(word, CLAIMED << 2 * place) >> 2 * place & (CLAIMED | STORED);
    }

    /// If a warp is storing, until it has stored.
    __device__ __forceinline__ void wait(const int* word, int place) {
        while (__any_sync(~0u, before == CLAIMED)) {
            const int found = published_bits(word) >> 2 * place & (CLAIMED | STORED);
            if (before == CLAIMED) before = found;
        }
        __syncwarp();
    }

    /// Whether the warp is the first, who stores.
    __device__ __forceinline__ bool none() const { return __any_sync(~0u, before == 0); }

    /// All has been stored, if the warp stores.
    __device__ __forceinline__ void publish(int* word, int place) const {
        __syncwarp();
        publish_bits(word, STORED << 2 * place, before == 0);
    }
};
