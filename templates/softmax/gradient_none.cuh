#include "common/math.cuh"

/// P = score, dS = dP.
struct Gradient {
    float factor;

    /// `unit`: natural units in one unit of the scores.
    __device__ __forceinline__ explicit Gradient(float unit) : factor(unit) {}

    /// The probability, and the gradient of the score. `low_bits` is what rounding took from the score; `prob_gradient` is
    /// dP. A pair that isn't kept weighs nothing, whatever its score, and one of -inf in natural units neither: for them
    /// both are exactly 0, if dP and delta are finite.
    __device__ __forceinline__ float of(bool kept, float score, [[maybe_unused]] float low_bits, float prob_gradient,
                                        [[maybe_unused]] const RowStatistics& row, float& prob) const {
        const bool weighs = kept && score != NEGATIVE_INFINITY;
        prob = weighs ? score * factor : 0.0f;
        return weighs ? prob_gradient : 0.0f;
    }
};
