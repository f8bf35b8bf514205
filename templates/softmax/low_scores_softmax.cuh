#include "softmax/softmax_rows.cuh"

/// The stale maxima of normalize_softmax.cuh, where scores may be very low, as masks of floats make them. A row that has met such
/// scores alone is far: relative to its maximum, say -1e9, other scores would lose their digits. So while a lane has a far row, the
/// exponents of its rows are relative to 0, and the warp takes the branch that moves maxima in each tile.
template <int M_TILES>
struct Normalizer : SoftmaxRows<M_TILES> {
    using Base = SoftmaxRows<M_TILES>;
    using Base::factor, Base::offset, Base::each_row, Base::row_sum;

    /// `unit`: natural units in one unit of the scores; positive.
    __device__ __forceinline__ explicit Normalizer(float unit) : Base(unit) {}

    /// Exponents relative to a maximum above -FAR lose at most 2^-14 where P is rounded to 16 bits, else 2^-18.
    static constexpr float FAR = sizeof(typename Dtype::Element) == 4 ? 0x1p6f : 0x1p10f;

    /// Whether the lane has a far row. The lanes of a quad have the same rows.
    __device__ __forceinline__ bool far() const {
        bool any = false;
        each_row([&](int m, int r) { any |= offset[m][r] > FAR; });
        return any;
    }

    /// What is added to the scores of a row, as exponents.
    __device__ __forceinline__ float shift(int m, int r) const { return far() ? 0.0f : offset[m][r]; }

    __device__ __forceinline__ float exponent(int m, int r, float score) const { return fmaf(score, factor, shift(m, r)); }

    template <int N_TILES>
    __device__ __forceinline__ void to_exponents(float (&scores)[M_TILES][N_TILES][4]) const {
        each_row([&](int m, int r) {
            const float of_row = shift(m, r);
#pragma unroll
            for (int i = 0; i < 2 * N_TILES; ++i) {
                float& x = scores[m][i / 2][2 * r + i % 2];
                x = fmaf(x, factor, of_row);
            }
        });
    }

    /// Whether the maxima are still valid for a tile's exponents. All lanes of the warp must agree on what follows.
    template <int N_TILES>
    __device__ __forceinline__ bool max_still_valid(const float (&exponents)[M_TILES][N_TILES][4]) const {
        return Base::max_still_valid(exponents) & !far();
    }

    /// Moves the maxima if need be. All lanes must call.
    template <int N_TILES, int D_TILES>
    __device__ __forceinline__ void settle(float (&exponents)[M_TILES][N_TILES][4], float (&out)[M_TILES][D_TILES][4]) {
        if (__all_sync(~0u, max_still_valid(exponents))) return;
        const bool from_zero = far();
        each_row([&](int m, int r) { move(m, r, from_zero, exponents, out); });
    }

    /// Makes the row's largest exponent so far FIRST. Each lane gets a share of the sum, so that its own part tells that there
    /// is a maximum. `from_zero`: what `far` said when scores became exponents.
    template <int N_TILES, int D_TILES>
    __device__ __forceinline__ void move(int m, int r, bool from_zero, float (&exponents)[M_TILES][N_TILES][4],
                                         float (&out)[M_TILES][D_TILES][4]) {
        float peak = NEGATIVE_INFINITY;
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) peak = fmaxf(peak, fmaxf(exponents[m][n][2 * r], exponents[m][n][2 * r + 1]));
        const float sum = quad_sum(row_sum[m][r]), rescale = raise(m, r, from_zero, quad_max(peak), sum, exponents);
        row_sum[m][r] = 0.25f * sum * rescale;
#pragma unroll
        for (int d = 0; d < D_TILES; ++d) out[m][d][2 * r] *= rescale, out[m][d][2 * r + 1] *= rescale;
    }

    /// Raises the row's maximum where it must be, by the largest of a tile's exponents and the row's sum: exponents are relative
    /// to it then. A row whose sum is 0 has none: it has met only scores of -inf. Returns by what to multiply earlier sums.
    template <int N_TILES>
    __device__ __forceinline__ float raise(int m, int r, bool from_zero, float peak, float sum,
                                           float (&exponents)[M_TILES][N_TILES][4]) {
        const float before = offset[m][r], taken = from_zero ? 0.0f : before;
        const float raised = taken - (peak - Dtype::FIRST);  // from 0, and not from m, where a row is far: no digit is lost
        offset[m][r] = sum > 0 ? fminf(before, raised) : peak > NEGATIVE_INFINITY ? raised : before;
        const float step = taken - offset[m][r];
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) exponents[m][n][2 * r] -= step, exponents[m][n][2 * r + 1] -= step;
        return sum > 0 ? Dtype::power(offset[m][r] - before) : 1.0f;
    }
};
