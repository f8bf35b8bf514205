#include "quantized_kv/stored_tile.cuh"

/// Which row of scales the first key of a sequence has.
template <class Params>
__device__ __forceinline__ long long first_scale_row(const Params&, int sequence, int) {
    return sequence;
}

/// The rows of k, or of v, of one head of a sequence: those of a sequence have one scale.
struct StoredRows {
    const char* first;
    long long stride;
    const float* scales;

    __device__ __forceinline__ StoredRow row(int key, bool exists) const { return {first + key * stride, scales, exists}; }
};
