#include "attncc/math.cuh"

/// P = exp(score - lse), dS = P (dP - delta).
struct Gradient {
    float factor;

    /// `unit`: natural units in one unit of the scores.
    __device__ __forceinline__ explicit Gradient(float unit) : factor(unit * Dtype::UNIT) {}

    /// The probability, and the gradient of the score. `row` has the row's lse as an exponent, and delta; `prob_gradient` is
    /// dP. A score of -inf weighs nothing: for it both are exactly 0, if dP and delta are finite.
    __device__ __forceinline__ float of(float score, float prob_gradient, [[maybe_unused]] float2 row, float& prob) const {
        prob = Dtype::power(fmaf(score, factor, -row.x));
        return prob * (prob_gradient - row.y);
    }
};
