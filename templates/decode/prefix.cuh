#include "decode/partial_results.cuh"
#include "tiles/tiles.cuh"

// Behind a prefix that all sequences share (cascade inference): a launch before went over its first `prefix_keys` keys, for the rows
// of all sequences together. What it found are parts of each item, too.

/// Of a range, what stands behind these keys.
template <class Params>
__device__ __forceinline__ TileRange behind_prefix(const Params& params, TileRange range) {
    range.begin = max(range.begin, params.prefix_keys);
    return range;
}

/// 1, or NaN where queries of the sequence don't stand behind the prefix: what its results are multiplied by.
template <class Params, class Work>
__device__ __forceinline__ float prefix_holds(const Params& params, const Work& work) {
    return work.kv_len - work.q_len >= params.shared_prefix ? 1.0f : __int_as_float(0x7fffffff);
}

/// Parts of an item: its own, then those of its rows over the prefix. These lie before slot 0, [part, key head, row], each key head
/// having the rows of all sequences.
template <int COLUMNS>
struct PartsBehindPrefix : Parts<COLUMNS> {
    int own;
    long long prefix_first, prefix_step;  // rows: where the first of those parts begins, and how far it is to the next

    __device__ __forceinline__ long long place(int part, int width) const {
        return part < own ? Parts<COLUMNS>::place(part, width) : (prefix_first + (part - own) * prefix_step) * width;
    }
};

template <int COLUMNS, class Params, class Rows>
__device__ __forceinline__ PartsBehindPrefix<COLUMNS> with_prefix(const Params& params, const Rows& rows,
                                                                  const Parts<COLUMNS>& parts) {
    const long long step = (long long)params.num_kv_heads * params.prefix_rows;
    const long long query = (long long)rows.work.sequence * rows.work.q_len + rows.slots.first;  // of all sequences
    const long long row = (long long)rows.work.head * params.prefix_rows + query * params.group + rows.slots.past;
    PartsBehindPrefix<COLUMNS> all = {parts, parts.count, row - params.prefix_parts * step, step};
    all.count += params.prefix_parts;
    return all;
}
