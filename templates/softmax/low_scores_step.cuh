#include "common/math.cuh"

// What stale maxima (stale_max_softmax.cuh) need where scores may be very low, as masks of floats make them. A row that has met such
// scores alone is far: its maximum is one of them, say -1e9.

/// A row is far whose maximum, as an exponent, is below minus this. Of others the multiply-add that makes exponents leaves 2^-5 at
/// most of what rounding took from the maximum; of -1e30 it would be 2^72.
constexpr float FAR = 0x1p20f;

/// Whether all rows of the warp have met a key, and none is far.
template <class Normalizer>
__device__ __forceinline__ bool has_near_max(const Normalizer& normalizer) {
    float highest = NEGATIVE_INFINITY;
    normalizer.each_row([&](int m, int r) { highest = fmaxf(highest, normalizer.offset[m][r]); });
    return __all_sync(~0u, highest <= FAR);
}

/// Normalizer::online_softmax_step, which rounds products of far rows before it adds the maximum: equal scores have exponents of 0.
template <class Normalizer, int M_TILES, int N_TILES>
__device__ __forceinline__ void low_scores_step(Normalizer& normalizer, float (&scores)[M_TILES][N_TILES][4]) {
    normalizer.each_row([&](int m, int r) {
        float even = scores[m][0][2 * r], odd = scores[m][0][2 * r + 1];
#pragma unroll
        for (int n = 1; n < N_TILES; ++n) {
            even = fmaxf(even, scores[m][n][2 * r]);
            odd = fmaxf(odd, scores[m][n][2 * r + 1]);
        }
        float maximum = -quad_max(fmaxf(even, odd)) * normalizer.factor;
        if constexpr (Dtype::FIRST != 0) maximum += Dtype::FIRST;
        const float before = normalizer.offset[m][r], lowest = fminf(before, maximum);
        const bool unset = lowest == -NEGATIVE_INFINITY, far = lowest > FAR;  // unset: the row has met only scores of -inf
        // Of a row without a maximum, earlier output is 0 as it is.
        normalizer.rescale[m][r] = before == -NEGATIVE_INFINITY ? 1.0f : exp2_flushed(lowest - before);
        normalizer.row_sum[m][r] *= normalizer.rescale[m][r];
        normalizer.offset[m][r] = lowest;
        const float near_shift = far ? 0.0f : lowest, far_shift = far & !unset ? lowest : 0.0f;
#pragma unroll
        for (int i = 0; i < 2 * N_TILES; ++i) {
            float& x = scores[m][i / 2][2 * r + i % 2];
            x = fmaf(x, normalizer.factor, near_shift) + far_shift;
        }
        normalizer.tile_sum[m][r] = 0;
    });
}
