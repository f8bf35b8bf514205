#include "attncc/grid.cuh"

/// Block `index` of queries in the order of persistent kernels: the heads of one section, whose keys and values fit the L2
/// cache, go together; among them the last rows go first, since a causal mask gives them the most keys.
template <int BLOCK_Q, class Params>
__device__ __forceinline__ Work find_work(const Params& params, int index) {
    const int batch = params.cu_seqlens_q == nullptr ? params.batch : 1;
    const int heads = batch * params.num_heads * params.splits;  // with the splits of a head, which share keys too
    const int section = index / (params.section * params.q_blocks), first = section * params.section;
    const int here = min(params.section, heads - first);
    index -= first * params.q_blocks;
    Work work;
    work.q_block = params.q_blocks - 1 - index / here;
    const int head = first + index % here;
    work.split = head % params.splits;
    work.head = head / params.splits % params.num_heads;
    work.sequence = work.batch_index = head / params.splits / params.num_heads;
    find_sequence<BLOCK_Q>(work, params);
    find_rows(work, params);
    return work;
}

/// The block to work on after `index`, -1 if none is left: where all take alike long, each thread block has its share of
/// them. Its first lane's answer counts. Thread blocks claim until they are told -1: as the first block of each isn't claimed,
/// there are `blocks` claims in all, and the last brings the counter back to the 0 where the first found it.
template <class Params>
__device__ __forceinline__ int claim_block(const Params& params, int index) {
    if (params.next_block == nullptr)
        index += gridDim.x;
    else if (threadIdx.x % 32 == 0)
        index = atomicInc(params.next_block, params.blocks - 1) + gridDim.x;
    return index < params.blocks ? index : -1;
}
