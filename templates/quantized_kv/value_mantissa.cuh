#include "common/math.cuh"

/// scale / mantissa, exactly where it is a power of two.
__device__ __forceinline__ float over_mantissa(float scale, float mantissa) {
    const unsigned bits = __float_as_uint(scale);
    if (((bits ^ __float_as_uint(mantissa)) & 0x007fffff) == 0 && scale == scale) return __uint_as_float(bits & 0xff800000);
    return scale * fast_reciprocal(mantissa);
}

/// The mantissa, from 1 to 2, of the scale that the first value of a sequence has. P is multiplied by scales over it, and O by it.
/// So where all values of a row have one scale, P is rounded as if there were none: a P of 1 stays 1.
template <class Params>
__device__ __forceinline__ float value_mantissa(const Params& params, int sequence, int kv_head, int kv_len) {
    if (params.v_scale == nullptr) return 1;
    const long long row = first_scale_row(params, sequence, kv_len);
    if (row < 0) return 1;
    const float scale = __ldg(params.v_scale + row * params.v_scale_stride_row + kv_head * params.v_scale_stride_head);
    return __uint_as_float(__float_as_uint(scale) & 0x007fffff | 0x3f800000);
}
