#include "common/math.cuh"

/// Sets words of 4 bytes to 0, a multiple of four of them at a multiple of 16 bytes. `threads` threads share them, of which
/// this is number `thread`.
__device__ __forceinline__ void clear_fours(float* target, int words, int thread, int threads) {
    for (int at = 4 * thread; at < words; at += 4 * threads) *(float4*)(target + at) = float4{};
}

/// Clears any number of words anywhere.
__device__ __forceinline__ void clear_words(int* target, int words, int thread, int threads) {
    for (int at = thread; at < words; at += threads) target[at] = 0;
}
