#include "common/math.cuh"

/// P of any size, times scales of any size, for products in fp16: each row is multiplied by a power of two, which its O then has
/// too. As a running maximum it moves where P would leave the range. What is 2^-28 of the row's largest so far loses bits.
template <int M_TILES>
struct ProbsOfAnyRange {
    float power[M_TILES][2];

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) power[row / 2][row % 2] = 0x1p126f;
    }

    /// All lanes must call.
    template <int N_TILES, int D_TILES>
    __device__ __forceinline__ void take(float (&probs)[M_TILES][N_TILES][4], float (&out)[M_TILES][D_TILES][4]) {
        float top[M_TILES][2];
        bool fits = true;
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) {
            const int m = row / 2, r = row % 2;
            top[m][r] = 0;
#pragma unroll
            for (int i = 0; i < 2 * N_TILES; ++i) top[m][r] = fmaxf(top[m][r], fabsf(probs[m][i / 2][2 * r + i % 2]));
            top[m][r] = quad_max(top[m][r]);
            fits &= top[m][r] * power[m][r] < 0x1p15f;
        }
        if (!__all_sync(~0u, fits)) move(top, out);
#pragma unroll
        for (int i = 0; i < 4 * M_TILES * N_TILES; ++i)
            probs[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] *= power[i / 4 / N_TILES][i % 4 / 2];
    }

    /// What O of a row is to be multiplied by.
    __device__ __forceinline__ float rest(int m, int r) const { return __uint_as_float((254u << 23) - __float_as_uint(power[m][r])); }

private:
    /// Makes the largest of the rows that don't fit 2^13 and more.
    template <int D_TILES>
    __device__ __forceinline__ void move(const float (&top)[M_TILES][2], float (&out)[M_TILES][D_TILES][4]) {
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) {
            const int m = row / 2, r = row % 2;
            const unsigned exponent = __float_as_uint(fminf(top[m][r], 0x1p120f)) & 0x7f800000;
            const bool stays = top[m][r] * power[m][r] < 0x1p15f;
            const float next = stays ? power[m][r] : __uint_as_float((2 * 127 + 13 << 23) - exponent), ratio = next * rest(m, r);
#pragma unroll
            for (int d = 0; d < D_TILES; ++d) out[m][d][2 * r] *= ratio, out[m][d][2 * r + 1] *= ratio;
            power[m][r] = next;
        }
    }
};
