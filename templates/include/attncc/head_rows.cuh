#include "attncc/grid.cuh"
#include "attncc/output.cuh"

/// The rows of a tile of Q: those of one query head, where `Order` says. See group_rows.cuh for the other way.
template <class Order>
struct QueryRows {
    const Work& work;
    int first, last;  // q_idx

    /// The work of this block in the q_outer grid.
    template <class Params>
    static __device__ __forceinline__ Work find_work(const Params& params) {
        return ::find_work<Order::BLOCK>(params, params.num_heads, 1);
    }

    __device__ __forceinline__ QueryRows(const Work& work, int first)
        : work(work), first(first), last(Order::last(first, work.q_len)) {}

    template <class Params>
    __device__ __forceinline__ QueryRows(const Params& params, const Work& work)
        : QueryRows(work, Order::first(work.q_block * Order::BLOCK)) {}

    __device__ __forceinline__ bool exist() const { return (unsigned)first < (unsigned)work.q_len; }

    __device__ __forceinline__ bool holds(int slot) const { return Order::offset(slot) < work.q_len - first; }

    __device__ __forceinline__ int head() const { return work.head; }

    template <class Params>
    __device__ __forceinline__ int kv_head(const Params& params) const {
        return work.head / (params.num_heads / params.num_kv_heads);
    }

    /// Where the rows stand in a tensor with these strides, in elements.
    template <class Element>
    __device__ __forceinline__ RowPlaces<Element, Order> places(Element* tensor, long long batch_stride, long long head_stride,
                                                                long long row_stride) const {
        Element* target = tensor + work.batch_index * batch_stride + work.head * head_stride +
                          (work.q_start + (long long)first) * row_stride;
        return {target, row_stride, work.q_len - first};
    }
};

/// What a lane knows of its rows. They are made anew wherever they are used: kept in between, they would take registers from
/// the products.
template <class Order, int M_TILES>
struct LaneRows {
    int q_first, q_last;  // of the block
    int slot;             // this warp's first

    __device__ __forceinline__ LaneRows(const QueryRows<Order>& rows, int slot)
        : q_first(rows.first), q_last(rows.last), slot(slot) {}

    __device__ __forceinline__ int q_idx(int m, int r) const {
        const int first = opaque(q_first + Order::offset(slot + threadIdx.x % 32 / 4));
        return min(first + Order::offset(16 * m + 8 * r), q_last);
    }

    /// Of the warp, where a tile is a stretch.
    __device__ __forceinline__ int first() const { return min(opaque(q_first + slot), q_last); }
    __device__ __forceinline__ int last() const { return min(opaque(q_first + slot) + 16 * M_TILES - 1, q_last); }
};
