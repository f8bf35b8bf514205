#include "common/math.cuh"

/// P again, from scores less lse. `unit`: natural units in one unit of the scores, of any sign.
struct Recompute {
    static constexpr bool HAS_DELTA = true;  // which is subtracted from dP

    float factor;

    __device__ __forceinline__ explicit Recompute(float unit) : factor(unit * LOG2_E) {}

    /// What `prob` takes of a pair that is kept; of others it takes -inf.
    __device__ __forceinline__ float exponent(float score) const { return score * factor; }

    static __device__ __forceinline__ float prob(float exponent) { return exp2_flushed(exponent); }

    /// dP/dS, but for what the row's sum has in it.
    static __device__ __forceinline__ float dscore_factor(float, float prob) { return prob; }
};
