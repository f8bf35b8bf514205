#include "memory/tma_5d.cuh"

// Tiles of a 2-D grid, by maps with the axes (column, grid column, grid row, head, batch).

/// Brings a tile into the L2 cache whose rows stand as `Order` says.
template <class Tile, class Order>
__device__ __forceinline__ void fetch_ordered_ahead(const TensorMap& map, int position, int head, int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        tma_fetch_5d_ahead(map, panel * 64, position % Order::GRID_WIDTH, position / Order::GRID_WIDTH, head, batch);
}

/// Loads a tile of rows from `position` on, with zeros for what lies outside the tensor; `barrier` expects its bytes.
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_panels(unsigned target, const TensorMap& map, unsigned barrier, int position, int head,
                                                int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        tma_load_5d(target + panel * Tile::ROWS * 128, map, barrier, panel * 64, position % Order::GRID_WIDTH,
                    position / Order::GRID_WIDTH, head, batch);
}

/// Loads such a tile; `barrier` counts its bytes.
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_ordered(unsigned target, const TensorMap& map, unsigned barrier, int position,
                                                 int head, int batch) {
    barrier_arrive_expecting(barrier, Tile::BYTES);
    tma_load_panels<Tile, Order>(target, map, barrier, position, head, batch);
}
