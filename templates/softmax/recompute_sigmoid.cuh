#include "common/math.cuh"

/// P = sigmoid(score) again. The interface is that of recompute_softmax.cuh.
struct Recompute {
    static constexpr bool HAS_DELTA = false;

    float factor;

    __device__ __forceinline__ explicit Recompute(float unit) : factor(unit * LOG2_E) {}

    __device__ __forceinline__ float exponent(float score) const { return score * factor; }

    static __device__ __forceinline__ float prob(float exponent) { return __frcp_rn(1.0f + exp2_flushed(-exponent)); }

    static __device__ __forceinline__ float dscore_factor(float, float prob) { return prob * (1 - prob); }
};
