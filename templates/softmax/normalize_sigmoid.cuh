#include "common/math.cuh"
#include "softmax/no_row_state.cuh"

/// P = sigmoid(score).
template <int M_TILES>
struct Normalizer : NoRowState {
    float factor;

    __device__ __forceinline__ explicit Normalizer(float unit) : factor(unit * Dtype::UNIT) {}

    static __device__ __forceinline__ float masked() { return NEGATIVE_INFINITY; }

    __device__ __forceinline__ void to_probs(int, float (&x)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = __frcp_rn(1.0f + Dtype::power(-x[i] * factor));
    }
};
