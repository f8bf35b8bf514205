#include "attncc/math.cuh"

/// Two floats for a row: lse as an exponent, infinite for a row without weight, and delta.
template <class Dtype>
struct Statistics {
    static __device__ __forceinline__ void store(float* statistics, long long row, float lse, float delta) {
        const float exponent = lse == NEGATIVE_INFINITY ? -NEGATIVE_INFINITY : lse * Dtype::UNIT;
        *(float2*)(statistics + 2 * row) = make_float2(exponent, delta);
    }

    /// lse, infinite for a row without weight, and delta.
    static __device__ __forceinline__ float2 load(const float* statistics, long long row) {
        const float2 x = *(const float2*)(statistics + 2 * row);
        return make_float2(x.x * Dtype::NATURAL, x.y);
    }
};
