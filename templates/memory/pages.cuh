#include "common/math.cuh"

// A cache in pages (PagedAttention, Kwon et al. 2023): key j of a sequence is row j % page_rows of page
// block_table[sequence][j / page_rows].

struct PagedKey {
    int page, row;
};

/// Where a key of a sequence is. The table is read for keys that there are alone. What is no page gives one that lies outside
/// the pool.
template <class Params>
__device__ __forceinline__ PagedKey paged_key(const Params& params, int sequence, int key) {
    const int entry = (int)((unsigned long long)key * params.page_magic >> params.page_shift);
    const int page = __ldg(params.block_table + (long long)sequence * params.max_blocks + entry);
    return {page, key - entry * params.page_rows};
}

template <class Params>
__device__ __forceinline__ bool in_pool(const Params& params, const PagedKey& key) {
    return (unsigned)key.page < (unsigned)params.pages;
}
