#include "scheduler/grid.cuh"
#include "memory/in_registers.cuh"

/// Which query and head the 64 rows of each warpgroup are of: row i is query i / heads, of head i % heads of those that stand
/// together. What is left behind whole queries is no row.
struct QuerySlots {
    int heads, inverse;  // ceil(2^16 / heads): a multiplication in place of a division, exact up to 64

    template <class Params>
    __device__ __forceinline__ explicit QuerySlots(const Params& params) : heads(params.row_heads), inverse(params.row_heads_inverse) {}

    /// How many a warpgroup has.
    __device__ __forceinline__ int queries() const { return 64 * inverse >> 16; }

    /// Counted from the block's first.
    __device__ __forceinline__ int query(int slot) const { return slot / 64 * queries() + in_warpgroup(slot); }

    /// Counted from the group's first.
    __device__ __forceinline__ int head(int slot) const { return min(slot % 64 - in_warpgroup(slot) * heads, heads - 1); }

    __device__ __forceinline__ bool holds(int slot) const { return slot % 64 < queries() * heads; }

private:
    __device__ __forceinline__ int in_warpgroup(int slot) const { return min(slot % 64 * inverse >> 16, queries() - 1); }
};

/// Rows of a block as they stand in a tensor: `target` is its first query of the group's first head, strides are in elements.
template <class Element>
struct GroupPlaces {
    Element* target;
    long long head_stride, row_stride;
    QuerySlots slots;
    int queries;  // from the block's first on

    __device__ __forceinline__ bool holds(int slot) const { return slots.holds(slot) && slots.query(slot) < queries; }

    __device__ __forceinline__ long long offset(int slot) const {
        return slots.head(slot) * head_stride + slots.query(slot) * row_stride;
    }
};

/// The rows of a tile of Q: those of query heads that share a key head, so that its keys and values are loaded once for them.
/// See group_rows.cuh for tiles that begin within a query.
template <class Order>
struct QueryRows {
    const Work& work;  // its head counts groups
    QuerySlots slots;
    int first, last;  // q_idx

    template <class Params>
    __device__ __forceinline__ QueryRows(const Params& params, const Work& work)
        : work(work), slots(params), first(work.q_block * (Order::BLOCK / 64) * slots.queries()),
          last(min(first + Order::BLOCK / 64 * slots.queries(), work.q_len) - 1) {}

    __device__ __forceinline__ bool exist() const { return (unsigned)first < (unsigned)work.q_len; }
    __device__ __forceinline__ bool holds(int slot) const { return slots.query(slot) < work.q_len - first; }

    /// The first of the group.
    __device__ __forceinline__ int head() const { return work.head * slots.heads; }

    template <class Params>
    __device__ __forceinline__ int kv_head(const Params& params) const {
        return head() / (params.num_heads / params.num_kv_heads);
    }

    /// The first slot of the calling warp's rows.
    template <int WARP_ROWS>
    __device__ __forceinline__ int warp_slot() const { return threadIdx.x / 32 * WARP_ROWS; }

    /// Where the rows stand in a tensor with these strides, in elements.
    template <class Element>
    __device__ __forceinline__ GroupPlaces<Element> places(Element* tensor, long long batch_stride, long long head_stride,
                                                           long long row_stride) const {
        Element* target = tensor + work.batch_index * batch_stride + head() * head_stride +
                          (work.q_start + (long long)first) * row_stride;
        return {target, head_stride, row_stride, slots, work.q_len - first};
    }
};

/// What a lane knows of its rows, made anew wherever they are used: kept, they would take registers from the products.
template <class Order, int M_TILES>
struct LaneRows {
    int q_first, q_last;  // of the block
    int slot;             // this warp's first
    int first_head;
    QuerySlots slots;

    __device__ __forceinline__ LaneRows(const QueryRows<Order>& rows, int slot)
        : q_first(rows.first), q_last(rows.last), slot(slot), first_head(rows.head()), slots(rows.slots) {}

    __device__ __forceinline__ int q_idx(int m, int r) const { return min(q_first + slots.query(own_slot(m, r)), q_last); }
    __device__ __forceinline__ int head(int m, int r) const { return first_head + slots.head(own_slot(m, r)); }

    /// Of the block.
    __device__ __forceinline__ int first() const { return q_first; }
    __device__ __forceinline__ int last() const { return q_last; }

private:
    __device__ __forceinline__ int own_slot(int m, int r) const {
        return opaque(slot + threadIdx.x % 32 / 4) + 16 * m + 8 * r;
    }
};
