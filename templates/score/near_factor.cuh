#include "score/score_form.cuh"

/// A factor that holds near 0, and the largest square of what it multiplied: that is judged afterwards, with the sums of
/// probabilities. Squares are there already, and no vote has to come before the exponentials.
template <class Factor>
struct NearFactor {
    Factor factor;
    int& peak;  // as an int, see ScoreFactor::size

    __device__ __forceinline__ float at(float product) const {
        peak = max(peak, __float_as_int(product * product));
        return factor.at(product);
    }
};
