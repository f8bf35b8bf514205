#include "memory/pages.cuh"
#include "quantized_kv/stored_tile.cuh"

/// Which row of scales the first key of a sequence has; -1 where no page has it.
template <class Params>
__device__ __forceinline__ long long first_scale_row(const Params& params, int sequence, int kv_len) {
    if (!params.scales_of_pages) return sequence;
    if (kv_len <= 0) return -1;
    const PagedKey first = paged_key(params, sequence, 0);
    return in_pool(params, first) ? first.page : -1;
}

/// The rows of k, or of v, of one head of a sequence. `pool` is row 0 of page 0; strides are in bytes, that of scales counts them
/// from page to page: 0 where those of a sequence have one.
template <class Params>
struct StoredPages {
    const Params& params;
    const char* pool;
    long long page_stride, row_stride;
    const float* scales;
    long long scale_stride;
    int sequence;

    __device__ __forceinline__ StoredRow row(int key, bool exists) const {
        PagedKey at = {-1, 0};
        if (exists) at = paged_key(params, sequence, key);
        if (!in_pool(params, at)) return {pool, scales, false};
        return {pool + at.page * page_stride + at.row * row_stride, scales + at.page * scale_stride, true};
    }
};
