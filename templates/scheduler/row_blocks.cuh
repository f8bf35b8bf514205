#include "scheduler/grid.cuh"

// What the backward kernels keep of rows lies in blocks of 16 rows, so that 16-byte accesses fit: of each row its statistics,
// and the sum of dQ in fragments. Each sequence and head begins with a block of its own, and ends with as many as fill up a
// multiple of ROW_ALIGNMENT rows, which the kernel that includes this says.
constexpr int ROW_BLOCK = 16, ALIGNED_BLOCKS = ROW_ALIGNMENT / ROW_BLOCK;

/// The row block that a head of a sequence begins with.
template <class Work, class Params>
__device__ __forceinline__ long long first_row_block(const Params& params, const Work& work, int head) {
    const int before = params.cu_seqlens_q == nullptr ? 0 : work.q_start / ROW_ALIGNMENT + work.sequence;
    return ((long long)work.batch_index * params.num_heads + head) * params.row_blocks + before * ALIGNED_BLOCKS;
}

/// Row block `index` of all heads: `q_block` counts row blocks here, and what is said of keys isn't known.
template <class Params>
__device__ __forceinline__ Work find_row_block(const Params& params, int index) {
    Work work;
    int aligned = index % params.row_blocks / ALIGNED_BLOCKS;
    work.head = index / params.row_blocks % params.num_heads;
    work.sequence = work.batch_index = index / params.row_blocks / params.num_heads;
    find_sequence<ROW_ALIGNMENT>(work.sequence, aligned, params.cu_seqlens_q, params.q_len, params.batch);
    work.q_block = aligned * ALIGNED_BLOCKS + index % ALIGNED_BLOCKS;
    find_q_rows(work, params);
    return work;
}

/// How many row blocks there are.
template <class Params>
__device__ __forceinline__ int all_row_blocks(const Params& params) {
    return (params.cu_seqlens_q == nullptr ? params.batch : 1) * params.num_heads * params.row_blocks;
}
