#include "mma/wgmma.cuh"

/// The A operands of the next P V, rounded while the one before is under way: in the gaps that exponentials leave, not when all
/// wait for it. See rounded_late.cuh for the other way.
template <class Dtype, int STEPS>
struct Operands {
    unsigned words[STEPS][4];

    /// Those of a step, as soon as its probabilities are there.
    __device__ __forceinline__ void round_step(int step, const float (*x)[4]) { pack_probs<Dtype>(words[step], x); }

    /// When the P V before is done.
    __device__ __forceinline__ void hand_over(unsigned (&probs)[STEPS][4], const float (*)[4]) const {
#pragma unroll
        for (int i = 0; i < 4 * STEPS; ++i) probs[i / 4][i % 4] = moved(words[i / 4][i % 4]);
    }
};
