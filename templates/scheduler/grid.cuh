#include "common/math.cuh"

/// What a block works on: `q_len` rows of one sequence and head from `q_start` on, and its keys.
struct Work {
    int sequence;          // b
    int batch_index;       // into the batch axis of the tensors: 0 in a packed batch
    int head, split, q_block;
    int q_start, q_len, kv_start, kv_len;

    /// The row of `lse` (and of the partial results of one split) that belongs to q_idx.
    template <class Params>
    __device__ __forceinline__ long long lse_row(const Params& params, int q_idx) const {
        return ((long long)batch_index * params.num_heads + head) * params.q_len + q_start + q_idx;
    }
};

/// Entry `index` of cumulative lengths; whatever they hold, no row outside 0..total is named.
__device__ __forceinline__ int sequence_start(const int* cu_seqlens, int index, int total) {
    return min(max(__ldg(cu_seqlens + index), 0), total);
}

/// What is known of a work's sequence: all lanes of the warp have the same work. (stream_k.cuh has works of lanes.)
template <class AnyWork>
__device__ __forceinline__ int agreed(const AnyWork&, int x) { return uniform(x); }

/// Where a sequence starts and how long it is: all of the tensor in a dense batch.
template <class AnyWork>
__device__ __forceinline__ void find_span(const AnyWork& work, int& start, int& length, const int* cu_seqlens, int sequence,
                                          int total) {
    int first = 0, last = total;
    if (cu_seqlens != nullptr) {
        first = sequence_start(cu_seqlens, sequence, total);
        last = sequence_start(cu_seqlens, sequence + 1, total);
    }
    start = agreed(work, first);
    length = agreed(work, max(last - first, 0));
}

/// The rows of the sequence that `work` names.
template <class AnyWork, class Params>
__device__ __forceinline__ void find_q_rows(AnyWork& work, const Params& params) {
    find_span(work, work.q_start, work.q_len, params.cu_seqlens_q, work.sequence, params.q_len);
}

/// The rows and the keys of the sequence that `work` names. In a cache, with room for more, `kv_lens` says how many.
template <class AnyWork, class Params>
__device__ __forceinline__ void find_rows(AnyWork& work, const Params& params) {
    find_span(work, work.q_start, work.q_len, params.cu_seqlens_q, work.sequence, params.q_len);
    find_span(work, work.kv_start, work.kv_len, params.cu_seqlens_kv, work.sequence, params.kv_len);
    int length = work.kv_len;
    if (params.kv_lens != nullptr) length = min(max(__ldg(params.kv_lens + work.sequence), 0), length);
    work.kv_len = agreed(work, length);  // not in the branch: no value is agreed upon under a predicate
}

/// Where the keys of a sequence are on the batch axis of k and v: only in a packed batch there is none.
template <class AnyWork, class Params>
__device__ __forceinline__ int kv_batch(const Params& params, const AnyWork& work) {
    return params.cu_seqlens_kv == nullptr ? work.sequence : 0;
}

/// Whether k and v may have rows, of any contents, behind a sequence's last key: other sequences', or a cache's.
template <class Params>
__device__ __forceinline__ bool rows_follow_keys(const Params& params) {
    return params.cu_seqlens_kv != nullptr || params.kv_lens != nullptr;
}

/// 1, or NaN where `kv_lens` holds what is no length of the sequence: what its results are multiplied by.
template <class Params>
__device__ __forceinline__ float length_holds(const Params& params, int sequence) {
    const bool holds = params.kv_lens == nullptr || (unsigned)__ldg(params.kv_lens + sequence) <= (unsigned)params.kv_len;
    return holds ? 1.0f : __int_as_float(0x7fffffff);
}

/// q_pos - q_idx of the sequence: what the call says; else its last query is at its last key.
template <class AnyWork, class Params>
__device__ __forceinline__ int query_offset(const Params& params, const AnyWork& work) {
    constexpr int NOT_GIVEN = 0, A_NUMBER = 1, OF_SEQUENCES = 2, MAX_LENGTH = (1 << 30) - (1 << 17);
    const int form = params.q_offset_form;
    int offset = params.q_offset;
    if (form > A_NUMBER) offset = __ldg(params.q_offsets + (form == OF_SEQUENCES ? work.sequence : 0));
    offset = min(max(offset, -MAX_LENGTH), MAX_LENGTH - work.q_len);
    return form == NOT_GIVEN ? work.kv_len - work.q_len : offset;  // single lanes ask, too
}

/// blockIdx.x, read anew each time: what is decoded from it before and after a loop takes no registers in between.
__device__ __forceinline__ int block_index() {
    int index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
}

/// In a packed batch, which sequence owns a block of rows, or of keys: `block` then counts within it. Each entry of
/// cu_seqlens counts for `rows_each` rows. Sequence s has the blocks from its first row / BLOCK + s on: at least one
/// for each BLOCK of its rows; those to spare have block * BLOCK >= its length.
template <int BLOCK>
__device__ __forceinline__ void find_sequence(int& sequence, int& block, const int* cu_seqlens, int total, int batch,
                                              int rows_each = 1) {
    if (cu_seqlens == nullptr) return;
    int low = 0, high = batch;  // the sequence is in [low, high)
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        const int first = sequence_start(cu_seqlens, middle, total) * rows_each / BLOCK + middle;
        (first <= block ? low : high) = middle;
    }
    block -= sequence_start(cu_seqlens, low, total) * rows_each / BLOCK + low;
    sequence = low;
}

/// Which head, split and rows block `index` of queries is. A sequence has `heads` heads, and a query `rows_each` rows.
/// The heads of one swizzle, whose keys and values fit the L2 cache, go together; among them the last rows go first: a
/// causal mask gives them the most keys, so that short blocks fill the end. SPLITS: whether there may be several.
template <int BLOCK_Q, bool SPLITS = true, class Params>
__device__ __forceinline__ Work find_queries(const Params& params, int index, int heads, int rows_each) {
    const auto splits = [&] { return SPLITS ? params.splits : 1; };
    const int all_heads = (params.cu_seqlens_q == nullptr ? params.batch : 1) * heads * splits();  // splits share keys too
    const int swizzle = index / (params.head_swizzle * params.q_blocks), first = swizzle * params.head_swizzle;
    const int here = min(params.head_swizzle, all_heads - first);
    index -= first * params.q_blocks;
    Work work;
    work.q_block = params.q_blocks - 1 - index / here;
    const int head = first + index % here;
    work.split = head % splits();
    work.head = head / splits() % heads;
    work.sequence = work.batch_index = head / splits() / heads;
    find_sequence<BLOCK_Q>(work.sequence, work.q_block, params.cu_seqlens_q, params.q_len, params.batch, rows_each);
    return work;
}

/// The work of this block in the q_outer grid.
template <int BLOCK_Q, class Params>
__device__ __forceinline__ Work find_work(const Params& params, int heads, int rows_each) {
    Work work = find_queries<BLOCK_Q>(params, block_index(), heads, rows_each);
    work.q_block = uniform(work.q_block);
    work.split = uniform(work.split);
    work.head = uniform(work.head);
    work.sequence = uniform(work.sequence);
    work.batch_index = uniform(work.batch_index);
    find_rows(work, params);
    return work;
}

/// The work of this block in the kv_outer grid: one block for each head of each sequence.
template <class Params>
__device__ __forceinline__ Work find_head(const Params& params) {
    Work work;
    work.q_block = work.split = 0;
    work.head = uniform(blockIdx.x % params.num_heads);
    work.sequence = uniform(blockIdx.x / params.num_heads);
    work.batch_index = params.cu_seqlens_q == nullptr ? work.sequence : 0;
    find_rows(work, params);
    return work;
}
