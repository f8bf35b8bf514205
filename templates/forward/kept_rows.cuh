#include "forward/head_rows.cuh"
#include "memory/in_registers.cuh"

/// What a lane knows of its rows, made anew wherever they are used: kept, they would take registers from the products.
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

    /// Of the warp, where tiles are 1-D.
    __device__ __forceinline__ int first() const { return min(opaque(q_first + slot), q_last); }
    __device__ __forceinline__ int last() const { return min(opaque(q_first + slot) + 16 * M_TILES - 1, q_last); }
};
