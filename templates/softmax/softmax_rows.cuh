#include "softmax/running_max.cuh"

/// The rows of a warp in the online softmax, but for how their maxima move: sums, probabilities, results.
template <int M_TILES>
struct SoftmaxRows : RunningMax<M_TILES> {
    using Base = RunningMax<M_TILES>;
    using Base::offset, Base::each_row;

    float row_sum[M_TILES][2];   // of this lane's columns, relative to the maximum
    float tile_sum[M_TILES][2];  // the same, of the tile in hand

    /// `unit`: natural units in one unit of the scores; positive.
    __device__ __forceinline__ explicit SoftmaxRows(float unit) : Base(unit * Dtype::UNIT) {
        each_row([&](int m, int r) { offset[m][r] = row_sum[m][r] = 0; });
    }

    /// Whether the maxima are still valid for a tile's exponents. All lanes of the warp must agree on what follows.
    template <int N_TILES>
    __device__ __forceinline__ bool max_still_valid(const float (&exponents)[M_TILES][N_TILES][4]) const {
        // As ints, positive floats are in order and above all negative ones. Hopper compares three at once.
        int top[4] = {};
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float x = exponents[m][n][i], y = exponents[m][n + 1][i];
                    top[i] = max(max(top[i], __float_as_int(x)), __float_as_int(y));
                }
        const float peak = __int_as_float(max(max(top[0], top[1]), max(top[2], top[3])));
        float least_sum = row_sum[0][0];
        each_row([&](int m, int r) { least_sum = fminf(least_sum, row_sum[m][r]); });
        return (peak <= Dtype::GROWTH) & (least_sum > 0);  // false for NaN
    }

    __device__ __forceinline__ void begin_tile() {
        each_row([&](int m, int r) { tile_sum[m][r] = 0; });
    }

    /// Exponents of row tile m, four of one fragment, to probabilities.
    __device__ __forceinline__ void to_probs(int m, float (&x)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = Dtype::power(x[i]);
            tile_sum[m][i / 2] += x[i];
        }
    }

    __device__ __forceinline__ void end_tile() {
        each_row([&](int m, int r) { row_sum[m][r] += tile_sum[m][r]; });
    }

    /// A row's state as it is kept in memory: its maximum (-inf: none) and sum.
    __device__ __forceinline__ void load_row(int m, int r, float row_max, float sum) {
        offset[m][r] = sum > 0 ? -row_max : 0.0f;
        row_sum[m][r] = threadIdx.x % 4 == 0 ? sum : 0.0f;
    }

    /// All lanes of the quad must call.
    __device__ __forceinline__ void read_row(int m, int r, float& row_max, float& sum) const {
        sum = quad_sum(row_sum[m][r]);
        row_max = sum > 0 ? -offset[m][r] : NEGATIVE_INFINITY;
    }

    /// What to multiply the row's output by. `row_max` becomes what its sum is relative to, -inf if it has no weight;
    /// `sink` takes part in the sum alone: both in natural units. All lanes of the quad must call.
    __device__ __forceinline__ float finish(int m, int r, float sink, float& row_max, float& sum) const {
        sum = quad_sum(row_sum[m][r]);
        const float maximum = sum == 0 ? NEGATIVE_INFINITY : -offset[m][r] * Dtype::NATURAL;
        row_max = fmaxf(maximum, sink);
        // What is left of the rest where no sink takes part, without its exponentials.
        if (sink == NEGATIVE_INFINITY) return row_max == NEGATIVE_INFINITY ? 0.0f : normal_reciprocal(sum);
        if (row_max == NEGATIVE_INFINITY) return 0;
        const float weight = expf(maximum - row_max);
        sum = sum * weight + expf(sink - row_max);
        return weight / sum;
    }
};
