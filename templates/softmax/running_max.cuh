#include "common/math.cuh"

/// The running maximum of each row of a warp, which exponents are relative to. What derives from it says when it moves.
template <int M_TILES>
struct RunningMax {
    float factor;              // exponent (see Dtype::power) in one unit of the scores; positive
    float offset[M_TILES][2];  // minus the maximum of each row, as an exponent

    __device__ __forceinline__ explicit RunningMax(float factor) : factor(factor) {}

    /// The score of a pair that isn't kept.
    static __device__ __forceinline__ float masked() { return NEGATIVE_INFINITY; }

    template <class Visit>
    static __device__ __forceinline__ void each_row(Visit visit) {
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) visit(row / 2, row % 2);
    }

    // What is added to a row's scores, as exponents; an exponent relative to the row's maximum.
    __device__ __forceinline__ float shift(int m, int r) const { return offset[m][r]; }
    __device__ __forceinline__ float exponent(int m, int r, float score) const { return fmaf(score, factor, shift(m, r)); }

    template <int N_TILES>
    __device__ __forceinline__ void to_exponents(float (&scores)[M_TILES][N_TILES][4]) const {
#pragma unroll
        for (int i = 0; i < 4 * M_TILES * N_TILES; ++i) {
            float& x = scores[i / (4 * N_TILES)][i / 4 % N_TILES][i % 4];
            x = exponent(i / (4 * N_TILES), i % 4 / 2, x);
        }
    }
};
