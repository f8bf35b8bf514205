#include "attncc/math.cuh"

/// Online softmax (FlashAttention-2, Algorithm 1, lines 8 to 12) that trusts old maxima. Any reference in place of a row's
/// maximum gives the same softmax, so where nothing is masked the exponentials subtract what earlier tiles have left, and
/// the tile's own sum, which is needed anyway, tells whether that was safe. It is for the caller to compute the
/// scores again where it wasn't, and to take the textbook step.
template <int M_TILES>
struct Normalizer {
    float factor;                        // exponent of 2 in one unit of the scores; positive
    float offset[M_TILES][2];            // minus the reference of each row, as an exponent; inf: no key so far
    float row_sum[M_TILES][2] = {};      // of this lane's columns, relative to the reference
    float tile_sum[M_TILES][2];          // the sums of that tile
    float rescale[M_TILES][2];           // what it makes of earlier sums and outputs

    /// `unit`: natural units in one unit of the scores; positive.
    __device__ __forceinline__ explicit Normalizer(float unit) : factor(unit * LOG2_E) {
        each_row([&](int m, int r) { offset[m][r] = -NEGATIVE_INFINITY; });
    }

    /// The score of a pair that isn't kept.
    static __device__ __forceinline__ float masked() { return NEGATIVE_INFINITY; }

    template <class Visit>
    static __device__ __forceinline__ void each_row(Visit visit) {
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) visit(row / 2, row % 2);
    }

    /// An exponent relative to the row's reference.
    __device__ __forceinline__ float exponent(int m, int r, float score) const { return fmaf(score, factor, offset[m][r]); }

    template <int N_TILES>
    __device__ __forceinline__ void to_exponents(float (&scores)[M_TILES][N_TILES][4]) const {
#pragma unroll
        for (int i = 0; i < 4 * M_TILES * N_TILES; ++i) {
            float& x = scores[i / (4 * N_TILES)][i / 4 % N_TILES][i % 4];
            x = exponent(i / (4 * N_TILES), i % 4 / 2, x);
        }
    }

    /// Whether all rows of the warp have met a key.
    __device__ __forceinline__ bool has_references() const {
        float highest = NEGATIVE_INFINITY;
        each_row([&](int m, int r) { highest = fmaxf(highest, offset[m][r]); });
        return __all_sync(~0u, highest < -NEGATIVE_INFINITY);
    }

    /// Begins a tile whose exponents are relative to the references that earlier tiles left. A row without one gets an
    /// infinite sum.
    __device__ __forceinline__ void trust() {
        each_row([&](int m, int r) { tile_sum[m][r] = 0; });
    }

    /// Begins a tile by the book: each row's largest score so far becomes its reference, and scores exponents.
    template <int N_TILES>
    __device__ __forceinline__ void observe(float (&scores)[M_TILES][N_TILES][4]) {
        each_row([&](int m, int r) {
            float even = scores[m][0][2 * r], odd = scores[m][0][2 * r + 1];
#pragma unroll
            for (int n = 1; n < N_TILES; ++n) {
                even = fmaxf(even, scores[m][n][2 * r]);
                odd = fmaxf(odd, scores[m][n][2 * r + 1]);
            }
            const float lowest = fminf(offset[m][r], -quad_max(fmaxf(even, odd)) * factor);
            const bool unset = lowest == -NEGATIVE_INFINITY;  // the row has met only scores of -inf
            rescale[m][r] = unset ? 1.0f : exp2_flushed(lowest - offset[m][r]);
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

    /// Whether the references served the warp's rows: no sum beyond what probabilities of 16 bits hold, none that is NaN.
    __device__ __forceinline__ bool served(float limit) const {
        float most = 0;
        each_row([&](int m, int r) { most += tile_sum[m][r]; });
        return __all_sync(~0u, most <= limit);
    }

    __device__ __forceinline__ void end_tile() {
        each_row([&](int m, int r) { row_sum[m][r] += tile_sum[m][r]; });
    }

    /// Earlier output, relative to the references that `observe` left.
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

    /// What to multiply the row's output by. `row_max`, in natural units, becomes what the row's sum is relative to, -inf if
    /// it has no weight. `sink`, in natural units, takes part in the sum alone. All lanes of the quad must call.
    __device__ __forceinline__ float finish(int m, int r, float sink, float& row_max, float& sum) const {
        sum = quad_sum(row_sum[m][r]);
        const float reference = sum == 0 ? NEGATIVE_INFINITY : -offset[m][r] * LN_2;
        row_max = fmaxf(reference, sink);
        if (row_max == NEGATIVE_INFINITY) return 0;
        if (sink == NEGATIVE_INFINITY) return 1 / sum;  // known where there is no sink
        const float weight = expf(reference - row_max);
        sum = sum * weight + expf(sink - row_max);
        return weight / sum;
    }
};
