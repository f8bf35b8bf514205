#include "quantized_kv/stored_tile.cuh"

/// The rows of k, or of v, of one head of a sequence: those of a sequence have one scale.
struct StoredRows {
    const char* first;
    long long stride;
    const float* scales;

    __device__ __forceinline__ StoredRow row(int key, bool exists) const { return {first + key * stride, scales, exists}; }
};
