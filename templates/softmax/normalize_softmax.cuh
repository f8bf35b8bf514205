#include "softmax/softmax_rows.cuh"

/// Online softmax (Milakov and Gimelshein 2018; FlashAttention-2, Algorithm 1, lines 8 to 12) of the rows of a warp, with
/// one liberty that leaves the result exact: a stale maximum serves as well. So it moves only when an
/// exponent is above Dtype::GROWTH (then P would leave 2^8, in fp32 e^8), a rare branch that the warp takes as a whole, and
/// makes the largest Dtype::FIRST (0: P is 1). Without it no maximum crosses the quad, and neither sums nor outputs are rescaled.
template <int M_TILES>
struct Normalizer : SoftmaxRows<M_TILES> {
    using Base = SoftmaxRows<M_TILES>;
    using Base::offset, Base::each_row, Base::row_sum, Base::max_still_valid;

    /// `unit`: natural units in one unit of the scores; positive.
    __device__ __forceinline__ explicit Normalizer(float unit) : Base(unit) {}

    /// Moves the maxima if need be. All lanes must call.
    template <int N_TILES, int D_TILES>
    __device__ __forceinline__ void settle(float (&exponents)[M_TILES][N_TILES][4], float (&out)[M_TILES][D_TILES][4]) {
        if (!__all_sync(~0u, max_still_valid(exponents))) each_row([&](int m, int r) { move(m, r, exponents, out); });
    }

    /// Makes the row's largest exponent so far FIRST. A row whose sum is 0 has none: it has met only scores of -inf.
    /// Each lane gets a share of the sum, so that its own part tells that there is a maximum.
    template <int N_TILES, int D_TILES>
    __device__ __forceinline__ void move(int m, int r, float (&exponents)[M_TILES][N_TILES][4],
                                         float (&out)[M_TILES][D_TILES][4]) {
        float peak = NEGATIVE_INFINITY;
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) peak = fmaxf(peak, fmaxf(exponents[m][n][2 * r], exponents[m][n][2 * r + 1]));
        peak = quad_max(peak);
        const float sum = quad_sum(row_sum[m][r]);
        const float excess = peak - Dtype::FIRST;
        const float step = sum > 0 ? fmaxf(excess, 0.0f) : peak > NEGATIVE_INFINITY ? excess : 0.0f;
        const float rescale = sum > 0 ? Dtype::power(-step) : 1.0f;
        offset[m][r] -= step;
        row_sum[m][r] = 0.25f * sum * rescale;
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) exponents[m][n][2 * r] -= step, exponents[m][n][2 * r + 1] -= step;
#pragma unroll
        for (int d = 0; d < D_TILES; ++d) out[m][d][2 * r] *= rescale, out[m][d][2 * r + 1] *= rescale;
    }
};
