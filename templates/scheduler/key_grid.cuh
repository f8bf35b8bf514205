#include "scheduler/grid.cuh"

/// What a block of the backward pass that owns keys works on: `kv_len` keys of one sequence and kv head, and its rows.
struct KeyWork {
    int sequence;     // b
    int batch_index;  // into the batch axis of the tensors: 0 in a packed batch
    int kv_head, kv_block;
    int part;  // which of its gradients, where one block makes dK and another dV
    int q_start, q_len, kv_start, kv_len;
};

/// The work of this block. The first keys go first: under a causal mask they have the most rows.
template <int BLOCK_KV, int PARTS, class Params>
__device__ __forceinline__ KeyWork find_keys(const Params& params) {
    KeyWork work;
    int index = block_index();
    work.part = uniform(index % PARTS);
    index /= PARTS;
    work.kv_block = index % params.kv_blocks;
    index /= params.kv_blocks;
    work.kv_head = uniform(index % params.num_kv_heads);
    work.sequence = work.batch_index = index / params.num_kv_heads;
    find_sequence<BLOCK_KV>(work.sequence, work.kv_block, params.cu_seqlens_kv, params.kv_len, params.batch);
    work.kv_block = uniform(work.kv_block);
    work.sequence = uniform(work.sequence);
    work.batch_index = uniform(work.batch_index);
    find_rows(work, params);
    return work;
}
