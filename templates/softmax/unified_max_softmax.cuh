#include "softmax/running_max.cuh"

/// Softmax with one number in place of all maxima: a unified maximum value (Hong et al., "FlashDecoding++", 2023, section 3).
/// There it is a guess; here scores are proven to lie so near it that no probability leaves Dtype. So whole tiles neither
/// look for maxima nor rescale anything. In others (masked, or with large scores) a row moves by a factor of 2 at most, so
/// that what weighs much is exact.
template <int M_TILES>
struct Normalizer : RunningMax<M_TILES> {
    using Base = RunningMax<M_TILES>;
    using Base::factor, Base::offset, Base::each_row;

    float row_sum[M_TILES][2] = {};  // of this lane's columns
    float tile_sum[M_TILES][2];      // the same, of the tile in hand
    float rescale[M_TILES][2];       // what `align` makes of earlier sums and outputs

    /// `unit`: natural units in one unit of the scores; score lines have made it 1.
    __device__ __forceinline__ explicit Normalizer(float unit) : Base(unit * LOG2_E) {
        each_row([&](int m, int r) { offset[m][r] = -UNIFIED_MAX; });
    }

    /// Where the largest score of a row weighs a sixteenth of all before the tile: makes its probability a power of 2, which
    /// isn't rounded. So a row with a single key has that key's value bit for bit, as with a running maximum. Errors of
    /// others are those of a running maximum, too; up to 1.12 x of these, if only what outweighs all before is moved.
    template <int N_TILES>
    __device__ __forceinline__ void align(const float (&scores)[M_TILES][N_TILES][4]) {
        each_row([&](int m, int r) {
            float even = scores[m][0][2 * r], odd = scores[m][0][2 * r + 1];
#pragma unroll
            for (int n = 1; n < N_TILES; ++n) {
                even = fmaxf(even, scores[m][n][2 * r]);
                odd = fmaxf(odd, scores[m][n][2 * r + 1]);
            }
            const float peak = quad_max(fmaxf(even, odd)) * factor, before = offset[m][r];
            const bool weighs = exp2_flushed(peak + before) > 0x1p-4f * quad_sum(row_sum[m][r]);
            offset[m][r] = weighs ? rintf(peak - UNIFIED_MAX) - peak : before;
            rescale[m][r] = exp2_flushed(offset[m][r] - before);
            row_sum[m][r] *= rescale[m][r];
        });
    }

    __device__ __forceinline__ void begin_tile() {
        each_row([&](int m, int r) { tile_sum[m][r] = -0.0f; });  // what it is added to stays as it is: no instruction
    }

    /// Four exponents of one fragment of row tile m to probabilities.
    __device__ __forceinline__ void to_probs(int m, float (&x)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = exp2_flushed(x[i]);
            tile_sum[m][i / 2] += x[i];
        }
    }

    __device__ __forceinline__ void end_tile() {
        each_row([&](int m, int r) { row_sum[m][r] += tile_sum[m][r]; });
    }

    /// Earlier output, as `align` left the rows.
    template <int D_TILES>
    __device__ __forceinline__ void rescale_rows(float (&out)[M_TILES][D_TILES][4]) const {
        bool moved = false;
        each_row([&](int m, int r) { moved |= rescale[m][r] != 1; });
        if (!__any_sync(~0u, moved)) return;
        each_row([&](int m, int r) {
#pragma unroll
            for (int d = 0; d < D_TILES; ++d) out[m][d][2 * r] *= rescale[m][r], out[m][d][2 * r + 1] *= rescale[m][r];
        });
    }

    /// Whether all sums of the tile are numbers. All lanes of the warp must call.
    __device__ __forceinline__ bool is_number() const {
        bool all = true;
        each_row([&](int m, int r) { all &= tile_sum[m][r] >= 0; });
        return __all_sync(~0u, all);
    }

    /// What to multiply the row's output by. `row_max`, in natural units, becomes what the row's sum is relative to, -inf if
    /// it has no weight: its own lse, or the sink's logit if that is larger, so that both weigh what they should, however
    /// far they are from the unified maximum. All lanes of the quad must call.
    __device__ __forceinline__ float finish(int m, int r, float sink, float& row_max, float& sum) const {
        const float own_sum = quad_sum(row_sum[m][r]);
        const float lse = own_sum == 0 ? NEGATIVE_INFINITY : fmaf(-offset[m][r], LN_2, logf(own_sum));
        row_max = sink > lse ? sink : lse;  // NaN, if that is lse
        sum = 0;
        if (row_max == NEGATIVE_INFINITY) return 0;
        const float weight = sink == NEGATIVE_INFINITY ? 1.0f : expf(lse - row_max);
        sum = sink == NEGATIVE_INFINITY ? 1.0f : weight + expf(sink - row_max);
        return own_sum == 0 ? 0.0f : weight * normal_reciprocal(sum * own_sum);
    }
};
