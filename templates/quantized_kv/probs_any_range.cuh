#include "common/math.cuh"

/// P of any size, times scales of any size, for products in fp16: a warp multiplies it by a power of two, which O then has too.
/// As a running maximum it moves where P would leave the range, and what is 2^-28 of the largest so far loses bits.
struct ProbsOfAnyRange {
    float power = 0x1p126f;

    /// All lanes must call.
    template <int M_TILES, int N_TILES, int D_TILES>
    __device__ __forceinline__ void take(float (&probs)[M_TILES][N_TILES][4], float (&out)[M_TILES][D_TILES][4]) {
        constexpr unsigned LARGEST = 13;  // the exponent of the largest when the power moves
        float top = 0;
#pragma unroll
        for (int i = 0; i < 4 * M_TILES * N_TILES; ++i) top = fmaxf(top, fabsf(probs[i / 4 / N_TILES][i / 4 % N_TILES][i % 4]));
        top = warp_max(top);
        if (top * power >= 0x1p15f) {
            const unsigned exponent = __float_as_uint(fminf(top, 0x1p120f)) & 0x7f800000;
            const float next = __uint_as_float((2 * 127 + LARGEST << 23) - exponent);
            multiply(out, next * rest());
            power = next;
        }
        multiply(probs, power);
    }

    /// What O is to be multiplied by.
    __device__ __forceinline__ float rest() const { return __uint_as_float((254u << 23) - __float_as_uint(power)); }

private:
    template <int M_TILES, int TILES>
    static __device__ __forceinline__ void multiply(float (&x)[M_TILES][TILES][4], float factor) {
#pragma unroll
        for (int i = 0; i < 4 * M_TILES * TILES; ++i) x[i / 4 / TILES][i / 4 % TILES][i % 4] *= factor;
    }
};
