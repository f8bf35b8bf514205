#include "scheduler/key_grid.cuh"

/// Block `index` of keys in the order of persistent kernels: the heads of one swizzle, whose queries fit the L2 cache, go
/// together; among them the first keys go first, since a causal mask gives them the most queries. Where sums have an order
/// (dq_semaphore.cuh) the last go first: under such a mask they begin with later tiles than those behind them in the order. Blocks 2i and
/// 2i + 1 of a pair are neighbours of one head.
template <int BLOCK_KV, class Cluster, class Params>
__device__ __forceinline__ KeyWork find_key_work(const Params& params, int index) {
    const int heads = (params.cu_seqlens_q == nullptr ? opaque(params.batch) : 1) * params.num_kv_heads;
    const int together = Cluster::blocks(), rank = index % together;
    const int kv_blocks = opaque(params.kv_blocks) / together;  // what is computed of it would take registers between blocks
    index /= together;
    const int swizzle = index / (params.head_swizzle * kv_blocks), first = swizzle * params.head_swizzle;
    const int here = min(params.head_swizzle, heads - first);
    index -= first * kv_blocks;
    KeyWork work;
    work.part = 0;
    work.kv_block = (params.dq_semaphore == nullptr ? index / here : kv_blocks - 1 - index / here) * together + rank;
    const int head = first + index % here;
    work.kv_head = head % params.num_kv_heads;
    work.sequence = work.batch_index = head / params.num_kv_heads;
    find_sequence<BLOCK_KV>(work.sequence, work.kv_block, params.cu_seqlens_kv, params.kv_len, params.batch);
    find_rows(work, params);
    return work;
}

/// The block to work on after `index`, or after -1 the first; -1 if none is left. Where all take alike long, each thread block
/// has its share of them. Else a counter has the next, so whoever gets a number runs, and so do those with smaller ones. The
/// warp calls together.
template <class Params>
__device__ __forceinline__ int next_key_tile(const Params& params, int index) {
    if (params.next_block == nullptr)
        index = index < 0 ? block_index() : index + gridDim.x;
    else if (thread_index() % 32 == 0)
        index = atomicAdd(params.next_block, 1);
    index = __shfl_sync(~0u, index, 0);
    return index < params.blocks ? index : -1;
}
