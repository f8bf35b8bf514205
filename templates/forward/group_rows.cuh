#include "scheduler/grid.cuh"
#include "memory/in_registers.cuh"

/// n / d of numbers below 2^16, by one instruction for the reciprocal.
__device__ __forceinline__ int small_quotient(int n, int d) { return (int)((n + 0.5f) * fast_reciprocal((float)d)); }

/// Which rows of a sequence and key head a tile has: row i is query i / group, of head i % group among them.
struct GroupSlots {
    int group;         // query heads for each key head
    unsigned inverse;  // ceil(2^32 / group): a multiplication in place of a division, exact below 2^16
    int first, past;   // the query of slot 0, and how many rows of that query are before the tile
    int count;         // slots that have a row, of all from the tile's first on

    __device__ __forceinline__ bool holds(int slot) const { return slot < count; }

    __device__ __forceinline__ int q_idx(int slot) const {
        return first + (group == 1 ? slot : (int)__umulhi(past + slot, inverse));
    }

    __device__ __forceinline__ int of_group(int slot, int q_idx) const { return past + slot - (q_idx - first) * group; }
};

/// Rows of a group as they stand in a tensor: `target` is query 0 of the group's first head, strides are in elements.
template <class Element>
struct GroupPlaces {
    Element* target;
    long long head_stride, row_stride;
    GroupSlots slots;

    __device__ __forceinline__ bool holds(int slot) const { return slots.holds(slot); }

    __device__ __forceinline__ long long offset(int slot) const {
        const int q_idx = slots.q_idx(slot);
        return slots.of_group(slot, q_idx) * head_stride + q_idx * row_stride;
    }
};

/// The rows of a tile of Q: those of all query heads that share a key head, so that its keys and values are loaded once for
/// them.
template <class Order>
struct QueryRows {
    const Work& work;  // its head is a key head
    GroupSlots slots;
    int first, last;   // q_idx

    template <class Params>
    __device__ __forceinline__ QueryRows(const Params& params, const Work& work) : work(work) {
        const int base = work.q_block * Order::BLOCK;
        first = base == 0 ? 0 : base / params.group;
        slots = {params.group, params.group_inverse, first, base - first * params.group, work.q_len * params.group - base};
        last = q_idx(tile_rows() - 1);
    }

    __device__ __forceinline__ int q_idx(int slot) const { return slots.q_idx(slot); }
    __device__ __forceinline__ int head_of(int slot) const { return head() + slots.of_group(slot, q_idx(slot)); }

    /// How many there are in the tile.
    __device__ __forceinline__ int tile_rows() const { return min(Order::BLOCK, slots.count); }

    /// How many warps it takes to hold them, of WARP_ROWS each. Others have the same rows, and work on other keys.
    template <int WARP_ROWS>
    __device__ __forceinline__ int row_warps() const {
        return (unsigned)(tile_rows() + WARP_ROWS - 1) / WARP_ROWS;
    }

    /// The first slot of the calling warp's rows.
    template <int WARP_ROWS>
    __device__ __forceinline__ int warp_slot() const {
        const int warp = threadIdx.x / 32, warps = row_warps<WARP_ROWS>();
        return (warp - small_quotient(warp, warps) * warps) * WARP_ROWS;
    }

    /// Of rows of several heads.
    template <class Dropout, class LaneRows>
    __device__ __forceinline__ void begin_dropout(Dropout& dropout, unsigned long long seed, unsigned threshold, int num_heads,
                                                  const LaneRows& lane_rows, int) const {
        dropout.begin_rows(seed, threshold, work.sequence * num_heads, lane_rows);
    }

    /// The first of the group.
    __device__ __forceinline__ int head() const { return work.head * slots.group; }

    template <class Params>
    __device__ __forceinline__ int kv_head(const Params& params) const {
        return work.head;
    }

    /// Where the rows stand in a tensor with these strides, in elements.
    template <class Element>
    __device__ __forceinline__ GroupPlaces<Element> places(Element* tensor, long long batch_stride, long long head_stride,
                                                           long long row_stride) const {
        Element* target = tensor + work.batch_index * batch_stride + head() * head_stride + work.q_start * row_stride;
        return {target, head_stride, row_stride, slots};
    }
};

/// What a lane knows of its rows.
template <class Order, int M_TILES>
struct LaneRows {
    int q_first, q_last;  // of the block
    int q[M_TILES][2], heads[M_TILES][2];

    __device__ __forceinline__ LaneRows(const QueryRows<Order>& rows, int slot) : q_first(rows.first), q_last(rows.last) {
        const int lane = opaque(threadIdx.x) % 32;  // not kept over a loop over items
#pragma unroll
        for (int i = 0; i < 2 * M_TILES; ++i) {
            const int row = min(slot + lane / 4 + 8 * i, rows.slots.count - 1);
            q[i / 2][i % 2] = rows.q_idx(row);
            heads[i / 2][i % 2] = rows.head_of(row);
        }
    }

    __device__ __forceinline__ int q_idx(int m, int r) const { return q[m][r]; }
    __device__ __forceinline__ int head(int m, int r) const { return heads[m][r]; }

    /// Of the block.
    __device__ __forceinline__ int first() const { return q_first; }
    __device__ __forceinline__ int last() const { return q_last; }
};
