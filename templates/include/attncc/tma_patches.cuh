#include "attncc/tma.cuh"

/// A tile whose rows stand as `Order` says, its first at `position`; what lies outside the tensor becomes zeros. Maps have the
/// axes (column, canvas column, canvas row, head, batch).
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_ordered(unsigned target, const TensorMap& map, unsigned barrier, int position,
                                                 int head, int batch) {
    barrier_arrive_expecting(barrier, Tile::BYTES);
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        asm volatile(
            "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
            "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(target + panel * Tile::ROWS * 128),
            "l"(&map), "r"(barrier), "r"(panel * 64), "r"(position % Order::CANVAS_WIDTH),
            "r"(position / Order::CANVAS_WIDTH), "r"(head), "r"(batch)
            : "memory");
}
