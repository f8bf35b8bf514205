#include "common/math.cuh"

/// O, m and l of warps that have the same rows and other keys, brought together through shared memory (the inner half of
/// Flash-Decoding's step 3): `shared` has room for all warps but one.
template <int M_TILES, int D_TILES>
struct WarpResults {
    static constexpr int OUT = 4 * M_TILES * D_TILES, FLOATS = OUT + 4 * M_TILES;  // of a lane
    static constexpr int BYTES = 32 * FLOATS * sizeof(float);                      // of a warp

    float* lane;  // of the first warp's place: lanes are neighbours

    __device__ __forceinline__ explicit WarpResults(unsigned char* shared) : lane((float*)shared + threadIdx.x % 32) {}

    /// All lanes must call.
    template <class Normalizer>
    __device__ __forceinline__ void put(int place, const Normalizer& normalizer, const float (&out)[M_TILES][D_TILES][4]) const {
        float* target = lane + place * (32 * FLOATS);
#pragma unroll
        for (int i = 0; i < OUT; ++i) target[32 * i] = out[i / 4 / D_TILES][i / 4 % D_TILES][i % 4];
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) {
            float max, sum;
            normalizer.read_row(row / 2, row % 2, max, sum);
            target[32 * (OUT + 2 * row)] = max;
            target[32 * (OUT + 2 * row + 1)] = sum;
        }
    }

    /// Adds what another warp has put there. Without a softmax all maxima are 0, and results just add up.
    template <class Normalizer>
    __device__ __forceinline__ void add(int place, Normalizer& normalizer, float (&out)[M_TILES][D_TILES][4]) const {
        const float* source = lane + place * (32 * FLOATS);
        float own_weight[2 * M_TILES], weight[2 * M_TILES];
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) {
            const float max = source[32 * (OUT + 2 * row)], sum = source[32 * (OUT + 2 * row + 1)];
            float own_max, own_sum;
            normalizer.read_row(row / 2, row % 2, own_max, own_sum);
            const float top = fmaxf(own_max, max);
            // Whoever has met no key has m = -inf, and weighs 0.
            own_weight[row] = own_max == NEGATIVE_INFINITY ? 0.0f : Dtype::power(own_max - top);
            weight[row] = max == NEGATIVE_INFINITY ? 0.0f : Dtype::power(max - top);
            normalizer.load_row(row / 2, row % 2, top, own_sum * own_weight[row] + sum * weight[row]);
        }
#pragma unroll
        for (int i = 0; i < OUT; ++i) {
            const int row = i / 4 / D_TILES * 2 + i % 4 / 2;
            float& x = out[i / 4 / D_TILES][i / 4 % D_TILES][i % 4];
            x = fmaf(weight[row], source[32 * i], x * own_weight[row]);
        }
    }
};
