#include "forward/head_rows.cuh"
#include "memory/spilled_to_smem.cuh"

/// What a lane knows of its rows, made anew wherever it is used, from what was spilled to shared memory.
template <class Order, int M_TILES>
struct LaneRows {
    const Work& work;

    __device__ __forceinline__ LaneRows(const QueryRows<Order>& rows, int) : work(rows.work) {}

    __device__ __forceinline__ int q_idx(int m, int r) const {
        const int lane_first = q_first() + Order::offset(warp_row() + threadIdx.x % 32 / 4);
        return min(lane_first + Order::offset(16 * m + 8 * r), q_last());
    }

    /// Of the warp, where tiles are 1-D.
    __device__ __forceinline__ int first() const { return min(q_first() + warp_row(), q_last()); }
    __device__ __forceinline__ int last() const { return min(q_first() + warp_row() + 16 * M_TILES - 1, q_last()); }

private:
    static __device__ __forceinline__ int warp_row() { return opaque(threadIdx.x) / 32 * (16 * M_TILES); }
    __device__ __forceinline__ int q_first() const { return opaque(Order::first(work.q_block * Order::BLOCK)); }
    __device__ __forceinline__ int q_last() const { return Order::last(q_first(), work.q_len); }
};
