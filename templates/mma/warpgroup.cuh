#include "memory/barrier.cuh"
#include "common/math.cuh"
#include "memory/tma.cuh"
#include "memory/words.cuh"

// What consumers do to tiles before wgmma reads them. Each warpgroup has a named barrier, and all have one more.

__device__ __forceinline__ void warpgroup_wait(int warpgroup) { named_wait(1 + warpgroup, 128); }

/// Moves the sign of `scale`, and zero, into the warpgroup's Q tile; returns the positive factor that scores then need.
template <class Dtype, class QTile>
__device__ __forceinline__ float take_sign(unsigned queries, float scale, int warpgroup) {
    if (!(scale <= 0)) return scale;
#pragma unroll 1
    for (int byte = threadIdx.x % 128 * 4; byte < QTile::BYTES; byte += 128 * 4) {
        const unsigned word = load_word(queries + byte);
        store_word(queries + byte, scale == 0 ? 0 : word ^ Dtype::SIGN_BITS);
    }
    fence_async();
    warpgroup_wait(warpgroup);
    return scale == 0 ? 1 : -scale;
}

/// Zeros in place of a tile's rows from `rows` on: they belong to another sequence, and 0 times what they hold may be
/// NaN. THREADS share the work, all that multiply or those of one warpgroup, and wait for each other at `barrier`.
template <class Tile, int THREADS>
__device__ __forceinline__ void clear_rows(unsigned tile, int rows, int barrier = 1 + THREADS / 128) {
#pragma unroll 1
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
#pragma unroll 1
        for (int at = (rows * 8 + thread_index() % THREADS) * 16; at < Tile::ROWS * 128; at += THREADS * 16)
            store_words(tile + panel * Tile::ROWS * 128 + at, {0, 0, 0, 0});
    fence_async();
    named_wait(barrier, THREADS);
}

/// The scale that products with the keys of a block are to have: its reciprocal must be a number of the dtype, with all its bits.
/// Of one that is too small, 0 included, or too large, the keys take the rest, a power of 2 if it is too large.
template <class Dtype>
__device__ __forceinline__ float effective_scale(float scale) {
    if (fabsf(scale) > Dtype::MOST_SCALE) return __uint_as_float((__float_as_uint(scale) & 0x807fffff) | 0x3f800000);
    return fabsf(scale) >= Dtype::LEAST_SCALE ? scale : copysignf(Dtype::LEAST_SCALE, scale);
}

/// Gives the keys their part, and returns the effective scale. All THREADS that multiply share the work.
template <class Dtype, class KTile, int THREADS>
__device__ __forceinline__ float take_scale(unsigned keys, float scale) {
    const float effective = effective_scale<Dtype>(scale);
    if (effective == scale) return scale;
#pragma unroll 1
    for (int byte = threadIdx.x * 4; byte < KTile::BYTES; byte += THREADS * 4) {
        const unsigned word = load_word(keys + byte);
        store_word(keys + byte, Dtype::pack(Dtype::low(word) * (scale / effective), Dtype::high(word) * (scale / effective)));
    }
    fence_async();
    named_wait(1 + THREADS / 128, THREADS);
    return effective;
}
