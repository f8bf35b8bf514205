#include "common/math.cuh"

/// P = score again. The interface is that of recompute_softmax.cuh.
struct Recompute {
    static constexpr bool HAS_DELTA = false;

    float factor;

    __device__ __forceinline__ explicit Recompute(float unit) : factor(unit) {}

    __device__ __forceinline__ float exponent(float score) const { return score * factor; }

    static __device__ __forceinline__ float prob(float exponent) { return exponent == NEGATIVE_INFINITY ? 0 : exponent; }

    static __device__ __forceinline__ float dscore_factor(float exponent, float) { return exponent == NEGATIVE_INFINITY ? 0 : 1; }
};
