#include "portable_forward/kv_rows.cuh"

/// The keys and values of a work's sequence and head. See paged_keys.cuh for those of a pool of pages.
template <class Element, class Params>
__device__ __forceinline__ KvRows keys_of(const Params& params, const Work& work) {
    const Element* k = params.k + kv_batch(params, work) * params.k_stride_batch + work.head * params.k_stride_head +
                       work.kv_start * params.k_stride_row;
    const Element* v = params.v + kv_batch(params, work) * params.v_stride_batch + work.head * params.v_stride_head +
                       work.kv_start * params.v_stride_row;
    constexpr long long BYTES = sizeof(Element);
    return {(const char*)uniform(k), (const char*)uniform(v), params.k_stride_row * BYTES, params.v_stride_row * BYTES, work.kv_len};
}

/// 1: the keys of all tiles are there.
template <class Params>
__device__ __forceinline__ float keys_hold(const Params&, const Work&, int, int) {
    return 1;
}
