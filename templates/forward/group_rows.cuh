#include "scheduler/grid.cuh"
#include "memory/in_registers.cuh"

/// Rows of a group as they stand in a tensor: `target` is query 0 of the group's first head, strides are in elements.
template <class Element>
struct GroupPlaces {
    Element* target;
    long long head_stride, row_stride;
    int group, base, count;

    __device__ __forceinline__ bool holds(int slot) const { return base + slot < count; }

    __device__ __forceinline__ long long offset(int slot) const {
        const int row = base + slot, q_idx = row / group;
        return (row - q_idx * group) * head_stride + q_idx * row_stride;
    }
};

/// The rows of a tile of Q: those of all query heads that share a key head, so that its keys and values are loaded once for
/// them. Row i of a sequence and key head is query i / group, of head i % group among them.
template <class Order>
struct QueryRows {
    const Work& work;        // its head is a key head
    int group;               // query heads for each key head
    int base, count;         // the tile's first row, and how many the sequence and key head have
    int first, last;         // q_idx

    template <class Params>
    __device__ __forceinline__ QueryRows(const Params& params, const Work& work)
        : work(work), group(params.num_heads / params.num_kv_heads), base(work.q_block * Order::BLOCK),
          count(work.q_len * group), first(base / group), last((min(base + Order::BLOCK, count) - 1) / group) {}

    __device__ __forceinline__ bool exist() const { return base < count; }

    __device__ __forceinline__ bool holds(int slot) const { return base + slot < count; }

    __device__ __forceinline__ int q_idx(int slot) const { return (base + slot) / group; }
    __device__ __forceinline__ int head_of(int slot) const { return head() + (base + slot) % group; }

    /// How many there are in the tile.
    __device__ __forceinline__ int tile_rows() const { return min(Order::BLOCK, count - base); }

    /// How many warps it takes to hold them, of WARP_ROWS each. Others have the same rows, and work on other keys.
    template <int WARP_ROWS>
    __device__ __forceinline__ int row_warps() const {
        return (tile_rows() + WARP_ROWS - 1) / WARP_ROWS;
    }

    /// The first slot of the calling warp's rows.
    template <int WARP_ROWS>
    __device__ __forceinline__ int warp_slot() const {
        return threadIdx.x / 32 % row_warps<WARP_ROWS>() * WARP_ROWS;
    }

    /// Of rows of several heads.
    template <class Dropout, class LaneRows>
    __device__ __forceinline__ void begin_dropout(Dropout& dropout, unsigned long long seed, unsigned threshold, int num_heads,
                                                  const LaneRows& lane_rows, int) const {
        dropout.begin_rows(seed, threshold, work.sequence * num_heads, lane_rows);
    }

    /// The first of the group.
    __device__ __forceinline__ int head() const { return work.head * group; }

    template <class Params>
    __device__ __forceinline__ int kv_head(const Params& params) const {
        return work.head;
    }

    /// Where the rows stand in a tensor with these strides, in elements.
    template <class Element>
    __device__ __forceinline__ GroupPlaces<Element> places(Element* tensor, long long batch_stride, long long head_stride,
                                                           long long row_stride) const {
        Element* target = tensor + work.batch_index * batch_stride + head() * head_stride + work.q_start * row_stride;
        return {target, head_stride, row_stride, group, base, count};
    }
};

/// What a lane knows of its rows.
template <class Order, int M_TILES>
struct LaneRows {
    int q_first, q_last;  // of the block
    int q[M_TILES][2], heads[M_TILES][2];

    __device__ __forceinline__ LaneRows(const QueryRows<Order>& rows, int slot) : q_first(rows.first), q_last(rows.last) {
#pragma unroll
        for (int i = 0; i < 2 * M_TILES; ++i) {
            const int row = min(rows.base + slot + threadIdx.x % 32 / 4 + 8 * i, rows.count - 1);
            q[i / 2][i % 2] = row / rows.group;
            heads[i / 2][i % 2] = rows.head() + row % rows.group;
        }
    }

    __device__ __forceinline__ int q_idx(int m, int r) const { return q[m][r]; }
    __device__ __forceinline__ int head(int m, int r) const { return heads[m][r]; }

    /// Of the block.
    __device__ __forceinline__ int first() const { return q_first; }
    __device__ __forceinline__ int last() const { return q_last; }
};
