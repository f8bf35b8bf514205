#include "attncc/math.cuh"

/// P = sigmoid(score), dS = P (1 - P) dP.
struct Gradient {
    float factor;

    /// `unit`: natural units in one unit of the scores.
    __device__ __forceinline__ explicit Gradient(float unit) : factor(unit * Dtype::UNIT) {}

    /// The probability, and the gradient of the score. `rest` is what rounding took from the score; `prob_gradient` is
    /// dP. A score of -inf weighs nothing: for it both are exactly 0, if dP and delta are finite.
    __device__ __forceinline__ float of(float score, [[maybe_unused]] float rest, float prob_gradient,
                                        [[maybe_unused]] const RowStatistics& row, float& prob) const {
        prob = __frcp_rn(1.0f + Dtype::power(-score * factor));
        return prob * (1.0f - prob) * prob_gradient;
    }
};
