#include "common/math.cuh"

/// What warps tell each other of the rows of a tile of Q, through shared memory. Several groups of warps have the same rows and other
/// keys: they agree on one maximum of each row. All warps have columns of O of all rows: they learn by what to multiply them.
template <int ROWS, int GROUPS>
struct RowExchange {
    static constexpr int FLOATS = (2 * GROUPS + 1) * ROWS;

    float *peaks, *sums;  // [group, row]: the largest exponent of the tile in hand, and l
    float* factors;       // [row]

    __device__ __forceinline__ explicit RowExchange(float* shared)
        : peaks(shared), sums(shared + GROUPS * ROWS), factors(shared + 2 * GROUPS * ROWS) {}

    /// The row of the tile that the lane has as half r of 16 rows.
    static __device__ __forceinline__ int row_of(int first, int r) { return first + threadIdx.x % 32 / 4 + 8 * r; }

    /// Tells what a group has found of 16 rows. All lanes must call.
    template <class Normalizer, int N_TILES>
    __device__ __forceinline__ void put(int first, int group, const Normalizer& normalizer, const float (&exponents)[1][N_TILES][4]) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float peak = NEGATIVE_INFINITY;
#pragma unroll
            for (int n = 0; n < N_TILES; ++n) peak = fmaxf(peak, fmaxf(exponents[0][n][2 * r], exponents[0][n][2 * r + 1]));
            peak = quad_max(peak);
            if (threadIdx.x % 4 == 0) peaks[group * ROWS + row_of(first, r)] = peak;
        }
        put_sums(first, group, normalizer);
    }

    /// Normalizer::move of 16 rows, by what all groups have told. What O is to be multiplied by goes to `factors`.
    template <class Normalizer, int N_TILES>
    __device__ __forceinline__ void move(int first, Normalizer& normalizer, float (&exponents)[1][N_TILES][4]) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = row_of(first, r);
            float peak = NEGATIVE_INFINITY;
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) peak = fmaxf(peak, peaks[group * ROWS + row]);
            const float sum = sum_of(row), excess = peak - Dtype::FIRST;
            const float step = sum > 0 ? fmaxf(excess, 0.0f) : peak > NEGATIVE_INFINITY ? excess : 0.0f;
            const float rescale = sum > 0 ? Dtype::power(-step) : 1.0f;
            normalizer.offset[0][r] -= step;
            normalizer.row_sum[0][r] = 0.25f / GROUPS * sum * rescale;  // a share for each lane that has the row
#pragma unroll
            for (int n = 0; n < N_TILES; ++n) exponents[0][n][2 * r] -= step, exponents[0][n][2 * r + 1] -= step;
            if (threadIdx.x % 4 == 0) factors[row] = rescale;
        }
    }

    /// The same by Normalizer::raise, for scores that may be very low.
    template <class Normalizer, int N_TILES>
    __device__ __forceinline__ void raise(int first, Normalizer& normalizer, float (&exponents)[1][N_TILES][4]) const {
        const bool from_zero = normalizer.far();
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = row_of(first, r);
            const float sum = sum_of(row), rescale = normalizer.raise(0, r, from_zero, peak_of(row), sum, exponents);
            normalizer.row_sum[0][r] = 0.25f / GROUPS * sum * rescale;  // a share for each lane that has the row
            if (threadIdx.x % 4 == 0) factors[row] = rescale;
        }
    }

    /// Tells l of 16 rows. All lanes must call.
    template <class Normalizer>
    __device__ __forceinline__ void put_sums(int first, int group, const Normalizer& normalizer) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float sum = quad_sum(normalizer.row_sum[0][r]);
            if (threadIdx.x % 4 == 0) sums[group * ROWS + row_of(first, r)] = sum;
        }
    }

    /// l of 16 rows becomes that of all groups.
    template <class Normalizer>
    __device__ __forceinline__ void take_sums(int first, Normalizer& normalizer) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) normalizer.load_row(0, r, -normalizer.offset[0][r], sum_of(row_of(first, r)));
    }

    __device__ __forceinline__ void put_factors(int first, const float (&factor)[1][2]) const {
#pragma unroll
        for (int r = 0; r < 2; ++r)
            if (threadIdx.x % 4 == 0) factors[row_of(first, r)] = factor[0][r];
    }

    template <int ROW_TILES>
    __device__ __forceinline__ void take_factors(float (&factor)[ROW_TILES][2]) const {
#pragma unroll
        for (int row = 0; row < 2 * ROW_TILES; ++row) factor[row / 2][row % 2] = factors[row_of(16 * (row / 2), row % 2)];
    }

private:
    __device__ __forceinline__ float sum_of(int row) const {
        float sum = 0;
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) sum += sums[group * ROWS + row];
        return sum;
    }

    __device__ __forceinline__ float peak_of(int row) const {
        float peak = NEGATIVE_INFINITY;
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) peak = fmaxf(peak, peaks[group * ROWS + row]);
        return peak;
    }
};
