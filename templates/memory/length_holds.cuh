#include "common/math.cuh"

/// 1, or NaN where `kv_lens` holds what is no length of the sequence: what its results are multiplied by.
template <class Params>
__device__ __forceinline__ float length_holds(const Params& params, int sequence) {
    const bool holds = params.kv_lens == nullptr || (unsigned)__ldg(params.kv_lens + sequence) <= (unsigned)params.kv_len;
    return holds ? 1.0f : __int_as_float(0x7fffffff);
}
