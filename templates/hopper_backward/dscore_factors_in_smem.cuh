#include "memory/words.cuh"

/// Where a lane's factors of dS are in shared memory, in fp32: dS is dP - delta times these. Those of fragments 0, 2, ... are where the
/// lane will store dS, and the others in memory of their own.
struct DScoreFactors {
    unsigned even, odd;

    __device__ __forceinline__ unsigned at(int n) const { return (n % 2 == 0 ? even : odd) + n / 2 * 16 * 128; }

    /// Those of a fragment.
    __device__ __forceinline__ void store(int n, const float (&dscore_factors)[4]) const {
        unsigned four[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] = __float_as_uint(dscore_factors[i]);
        store_words(at(n), four);
    }

    /// dP - delta times the factors.
    __device__ __forceinline__ void multiply(Scores& dprobs) const {
#pragma unroll
        for (int n = 0; n < Q_TILES; ++n) {
            unsigned four[4];
            load_words(at(n), four);
#pragma unroll
            for (int i = 0; i < 4; ++i) dprobs[0][n][i] *= __uint_as_float(four[i]);
        }
    }
};
