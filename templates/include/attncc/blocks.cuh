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
    if (params.cu_seqlens_q != nullptr) {
        int low = 0, high = params.batch;  // the sequence is in [low, high)
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            const int first = sequence_start(params.cu_seqlens_q, middle, params.q_len) / BLOCK_Q + middle;
            (first <= work.q_block ? low : high) = middle;
        }
        work.q_block -= sequence_start(params.cu_seqlens_q, low, params.q_len) / BLOCK_Q + low;
        work.sequence = low;
    }
    find_rows(work, params);
    return work;
}

/// The block to work on next, -1 if none is left or each has a thread block of its own. Its first lane's answer counts. The
/// last of all claims sets the count back to 0 for the next launch.
template <class Params>
__device__ __forceinline__ int claim_block(const Params& params) {
    int index = -1;
    if (params.next_block != nullptr && threadIdx.x % 32 == 0) {
        const int claimed = atomicAdd(params.next_block, 1);
        if (claimed == params.blocks - 1) *params.next_block = 0;
        if (claimed < params.blocks - (int)gridDim.x) index = claimed + gridDim.x;
    }
    return index;
}
