#include "hopper_forward/pipeline.cuh"
#include "mma/wgmma.cuh"

// P V of 16-bit operands: V is multiplied as TMA brings it. The interface is that of values_transposed.cuh.

constexpr int STEP_KEYS = 16;  // that one product sums over

template <class Loaded, int>
using MultipliedValues = Loaded;

template <int STAGES, int WARPGROUPS, int GROUPS>
using ValuesPipeline = Pipeline<STAGES, WARPGROUPS, GROUPS>;

/// Offsets of the steps' keys in the tile, for its descriptor.
template <class>
using ValuesSteps = RowSteps;
constexpr unsigned long long VALUES_FORM = 0;

/// The A operand of a step, from its probabilities: tiles of 8 keys.
template <class Dtype>
__device__ __forceinline__ void pack_probs(unsigned (&words)[4], const float (*x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = Dtype::pack(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
}
