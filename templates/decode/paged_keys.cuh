#include "portable_forward/kv_pages.cuh"

/// The keys and values of a work's sequence and head, in a pool of pages. See dense_keys.cuh for the other way.
template <class Element, class Params>
__device__ __forceinline__ KvPages<Params> keys_of(const Params& params, const Work& work) {
    return KvPages<Params>(params, params.k + work.head * params.k_stride_head, params.v + work.head * params.v_stride_head,
                           work.sequence, work.kv_len);
}

/// 1, or NaN where the table names a page for keys [begin, end) that isn't in the pool.
template <class Params>
__device__ __forceinline__ float keys_hold(const Params& params, const Work& work, int begin, int end) {
    const int page = (int)((unsigned long long)begin * params.page_magic >> params.page_shift);
    return pages_hold(params, work.sequence, min(end, work.kv_len), page * params.page_rows);
}
