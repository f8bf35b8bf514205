#include "scheduler/grid.cuh"
#include "memory/output.cuh"

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

    /// The first slot of the calling warp's rows.
    template <int WARP_ROWS>
    __device__ __forceinline__ int warp_slot() const { return threadIdx.x / 32 * WARP_ROWS; }

    /// `slot`: the warp's first.
    template <class Dropout, class LaneRows>
    __device__ __forceinline__ void begin_dropout(Dropout& dropout, unsigned long long seed, unsigned threshold, int num_heads,
                                                  const LaneRows&, int slot) const {
        dropout.begin_rows(seed, threshold, work.sequence * num_heads + work.head, first + slot);
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
