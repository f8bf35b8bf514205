#include "memory/tma.cuh"

/// As `tma_load`, of a map with the axes (column, grid column, grid row, head, batch).
__device__ __forceinline__ void tma_load_2d(unsigned target, const TensorMap& map, unsigned barrier, int column,
                                               int grid_column, int grid_row, int head, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(target),
        "l"(&map), "r"(barrier), "r"(column), "r"(grid_column), "r"(grid_row), "r"(head), "r"(batch)
        : "memory");
}

/// Brings such a box into the L2 cache, ahead of its load.
__device__ __forceinline__ void tma_fetch_2d_ahead(const TensorMap& map, int column, int grid_column, int grid_row,
                                                      int head, int batch) {
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map), "r"(column),
                 "r"(grid_column), "r"(grid_row), "r"(head), "r"(batch)
                 : "memory");
}

/// Brings a tile into the L2 cache whose rows stand as `Order` says.
template <class Tile, class Order>
__device__ __forceinline__ void fetch_ordered_ahead(const TensorMap& map, int position, int head, int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        tma_fetch_2d_ahead(map, panel * 64, position % Order::GRID_WIDTH, position / Order::GRID_WIDTH, head, batch);
}

/// Loads a tile of rows from `position` on, with zeros for what lies outside the tensor; `barrier` expects its bytes.
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_panels(unsigned target, const TensorMap& map, unsigned barrier, int position, int head,
                                                int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        tma_load_2d(target + panel * Tile::ROWS * 128, map, barrier, panel * 64, position % Order::GRID_WIDTH,
                       position / Order::GRID_WIDTH, head, batch);
}

/// Loads such a tile; `barrier` counts its bytes.
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_ordered(unsigned target, const TensorMap& map, unsigned barrier, int position,
                                                 int head, int batch) {
    barrier_arrive_expecting(barrier, Tile::BYTES);
    tma_load_panels<Tile, Order>(target, map, barrier, position, head, batch);
}
