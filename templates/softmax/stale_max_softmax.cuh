#include "softmax/running_max.cuh"

/// Online softmax (FlashAttention-2, Algorithm 1, lines 8 to 12) with stale maxima. Any number in place of a row's
/// maximum gives the same softmax. So where nothing is masked, exponentials subtract the maxima of earlier tiles, and
/// the tile's sum, needed anyway, tells whether that was safe. Where it wasn't, the caller computes the scores again.
template <int M_TILES>
struct Normalizer : RunningMax<M_TILES> {
    using Base = RunningMax<M_TILES>;
    using Base::factor, Base::offset, Base::each_row;  // a row without keys so far has an infinite offset

    float row_sum[M_TILES][2] = {};  // of this lane's columns, relative to the maximum
    float tile_sum[M_TILES][2];      // the sums of that tile
    float rescale[M_TILES][2];       // what it makes of earlier sums and outputs

    /// `unit`: natural units in one unit of the scores; positive.
    __device__ __forceinline__ explicit Normalizer(float unit) : Base(unit * LOG2_E) {
        each_row([&](int m, int r) { offset[m][r] = -NEGATIVE_INFINITY; });
    }

    /// Gives all rows the same maximum: minus it, as an exponent.
    __device__ __forceinline__ void set_max(float exponent) {
        each_row([&](int m, int r) { offset[m][r] = exponent; });
    }

    /// To be called where a branch that is seldom taken has moved maxima, or the compiler would copy them in the other, too.
    __device__ __forceinline__ void stay() {
        each_row([&](int m, int r) { offset[m][r] = opaque_float(offset[m][r]); });
    }

    /// Whether all rows of the warp have met a key.
    __device__ __forceinline__ bool has_max() const {
        float highest = NEGATIVE_INFINITY;
        each_row([&](int m, int r) { highest = fmaxf(highest, offset[m][r]); });
        return __all_sync(~0u, highest < -NEGATIVE_INFINITY);
    }

    /// Begins a tile whose exponents are relative to earlier maxima. A row without one gets an infinite sum.
    __device__ __forceinline__ void keep_max() {
        each_row([&](int m, int r) { tile_sum[m][r] = -0.0f; });  // what it is added to stays as it is: no instruction
    }

    /// The step of the paper: each row's largest score so far becomes its maximum, and scores become exponents.
    template <int N_TILES>
    __device__ __forceinline__ void online_softmax_step(float (&scores)[M_TILES][N_TILES][4]) {
        each_row([&](int m, int r) {
            float even = scores[m][0][2 * r], odd = scores[m][0][2 * r + 1];
#pragma unroll
            for (int n = 1; n < N_TILES; ++n) {
                even = fmaxf(even, scores[m][n][2 * r]);
                odd = fmaxf(odd, scores[m][n][2 * r + 1]);
            }
            float maximum = -quad_max(fmaxf(even, odd)) * factor;
            if constexpr (Dtype::FIRST != 0) maximum += Dtype::FIRST;
            const float lowest = fminf(offset[m][r], maximum);
            const bool unset = lowest == -NEGATIVE_INFINITY;  // the row has met only scores of -inf
            // Of a row without a maximum, earlier output is 0 as it is.
            rescale[m][r] = offset[m][r] == -NEGATIVE_INFINITY ? 1.0f : exp2_flushed(lowest - offset[m][r]);
            row_sum[m][r] *= rescale[m][r];
            offset[m][r] = lowest;
            const float shift = unset ? 0.0f : lowest;
#pragma unroll
            for (int i = 0; i < 2 * N_TILES; ++i) {
                float& x = scores[m][i / 2][2 * r + i % 2];
                x = fmaf(x, factor, shift);
            }
            tile_sum[m][r] = 0;
        });
    }

    /// Four exponents of one fragment of row tile m to probabilities.
    __device__ __forceinline__ void to_probs(int m, float (&x)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = exp2_flushed(x[i]);
            tile_sum[m][i / 2] += x[i];
        }
    }

    /// Whether maxima are still valid: no sum of the warp is beyond `limit`, or NaN. `held`: what else must be true.
    __device__ __forceinline__ bool max_still_valid(float limit, bool held = true) const {
        bool all = held;
        each_row([&](int m, int r) { all &= tile_sum[m][r] <= limit; });
        return __all_sync(~0u, all);
    }

    /// Whether no sum is so small that the maximum was far above what a row has: what is smaller would be lost.
    __device__ __forceinline__ bool weighs(float least) const {
        bool all = true;
        each_row([&](int m, int r) { all &= tile_sum[m][r] >= least; });
        return __all_sync(~0u, all);
    }

    /// By what whole exponent a sum is beyond a quarter of the limit. Whole, so that a largest probability that is a power of
    /// two stays one, and rounds to itself. A quarter: of 64 rows of normal scores some sum is beyond the limit in 1 or 2 of
    /// 100 tiles then; a half leaves 30 (of 96 keys), no room 80. See docs/notebook/2026-11-e4m3.md.
    static __device__ __forceinline__ float beyond_room(float sum, float limit) {
        return fmaxf(ceilf(log2_approximate(sum * (4 / limit))), 0.0f);
    }

    /// Raises a row's maximum by an exponent, behind the probabilities of a tile. What earlier output is to be multiplied by.
    template <int N_TILES>
    __device__ __forceinline__ float lower_row(int m, int r, float step, float (&probs)[M_TILES][N_TILES][4]) {
        const float scale = exp2_flushed(-step);
        offset[m][r] -= step;
        row_sum[m][r] *= scale;
        tile_sum[m][r] *= scale;
#pragma unroll
        for (int i = 0; i < 2 * N_TILES; ++i) probs[m][i / 2][2 * r + i % 2] *= scale;
        return scale;
    }

    /// Where they aren't: raises the maxima of rows with a sum beyond the limit, so that the largest of the probabilities
    /// that are there is 2^FIRST, which rounds to itself: a key that outweighs all others needs that. Where it was hardly more,
    /// and many are large, by 2^2; and all rows as far as `leave_room` does, or each tile would come here. False if a sum isn't
    /// finite, nothing is changed then; and for dtypes with so high a limit that this is as good as all cases.
    template <int N_TILES>
    __device__ __forceinline__ bool lowered(float (&probs)[M_TILES][N_TILES][4], float limit) {
        if constexpr (Dtype::FIRST == 0) return false;
        if (!max_still_valid(__int_as_float(0x7f7fffff))) return false;
        each_row([&](int m, int r) {
            float peak = 0;
#pragma unroll
            for (int i = 0; i < 2 * N_TILES; ++i) peak = fmaxf(peak, probs[m][i / 2][2 * r + i % 2]);
            const float excess = fmaxf(log2_approximate(quad_max(peak)) - Dtype::FIRST, 2.0f);
            const float sum = quad_max(tile_sum[m][r]), step = sum > limit ? excess : 0.0f;
            rescale[m][r] = lower_row(m, r, step + beyond_room(sum * exp2_flushed(-step), limit), probs);
        });
        return true;
    }

    /// Behind the probabilities of a tile of 8 bits with new maxima: raises those of rows with a sum near the limit. Sums of the
    /// tiles to come are much like it, and some are twice as large.
    template <int N_TILES>
    __device__ __forceinline__ void leave_room(float (&probs)[M_TILES][N_TILES][4], float limit) {
        each_row([&](int m, int r) {
            rescale[m][r] *= lower_row(m, r, beyond_room(quad_max(tile_sum[m][r]), limit), probs);
        });
    }

    __device__ __forceinline__ void end_tile() {
        each_row([&](int m, int r) { row_sum[m][r] += tile_sum[m][r]; });
    }

    /// Raises maxima ahead of a tile by what rise(m, r) says, an exponent; `before` is what they were.
    template <class Rise>
    __device__ __forceinline__ void raise(float (&before)[2], Rise rise) {
        each_row([&](int m, int r) {
            before[r] = offset[m][r];
            offset[m][r] -= fmaxf(quad_max(rise(m, r)), 0.0f);
        });
    }

    /// Behind the tile's probabilities: whether its maxima serve, so that no sum is beyond `limit`, and none of a row below
    /// `least`, which would have lost digits. Earlier sums become relative to them, by `rescale`; or they are again what they were.
    __device__ __forceinline__ bool raised(const float (&before)[2], float limit, float least) {
        bool weighs = true;
        each_row([&](int m, int r) {
            rescale[m][r] = exp2_flushed(offset[m][r] - before[r]);
            weighs &= quad_max(fmaf(row_sum[m][r], rescale[m][r], tile_sum[m][r])) >= least;
        });
        const bool serves = max_still_valid(limit, weighs);
        each_row([&](int m, int r) {
            offset[m][r] = serves ? offset[m][r] : before[r];
            row_sum[m][r] *= serves ? rescale[m][r] : 1.0f;
        });
        return serves;
    }

    /// Earlier output, relative to the maxima that `online_softmax_step` left.
    template <int D_TILES>
    __device__ __forceinline__ void rescale_rows(float (&out)[M_TILES][D_TILES][4]) const {
        bool moved = false;
        each_row([&](int m, int r) { moved |= rescale[m][r] != 1; });
        if (!__any_sync(~0u, moved)) return;
        each_row([&](int m, int r) {
#pragma unroll
            for (int i = 0; i < 2 * D_TILES; ++i) out[m][i / 2][2 * r + i % 2] *= rescale[m][r];
        });
    }

    /// What to multiply the row's output by. `row_max` becomes what its sum is relative to, -inf if it has no weight;
    /// `sink` takes part in the sum alone: both in natural units. All lanes of the quad must call.
    __device__ __forceinline__ float finish(int m, int r, float sink, float& row_max, float& sum) const {
        sum = quad_sum(row_sum[m][r]);
        const float maximum = sum == 0 ? NEGATIVE_INFINITY : -offset[m][r] * LN_2;
        row_max = fmaxf(maximum, sink);
        if (row_max == NEGATIVE_INFINITY) return 0;
        if (sink == NEGATIVE_INFINITY) return normal_reciprocal(sum);  // known where there is no sink
        const float weight = expf(maximum - row_max);
        sum = sum * weight + expf(sink - row_max);
        return weight / sum;
    }
};
