#include "scheduler/grid.cuh"
#include "memory/pages.cuh"

/// 1, or NaN where the table names a page for the sequence's keys that isn't in the pool: what its results are multiplied by.
/// All lanes of a warp call.
template <class Params>
__device__ __forceinline__ float pages_hold(const Params& params, int sequence, int kv_len, int first) {
    const int page = (int)((unsigned long long)first * params.page_magic >> params.page_shift);
    bool holds = true;
#pragma unroll 4
    for (int key = page * params.page_rows + (int)(threadIdx.x % 32) * params.page_rows; key < kv_len; key += 32 * params.page_rows)
        holds &= in_pool(params, paged_key(params, sequence, key));
    return __all_sync(~0u, holds) ? 1.0f : __int_as_float(0x7fffffff);
}

/// What the results of a sequence are multiplied by: NaN where its length, or a page of it, can't be. All lanes of a warp call.
template <class Params>
__device__ __forceinline__ float keys_hold(const Params& params, int sequence, int kv_len, int first = 0) {
    return length_holds(params, sequence) * pages_hold(params, sequence, kv_len, first);
}
