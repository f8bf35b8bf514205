#include "memory/tma.cuh"

/// Brings a box into the L2 cache, ahead of its load.
__device__ __forceinline__ void tma_fetch_ahead(const TensorMap& map, int column, int row, int head, int batch) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(column), "r"(row),
                 "r"(head), "r"(batch)
                 : "memory");
}

/// Brings a tile into the L2 cache whose rows stand as `Order` says.
template <class Tile, class Order>
__device__ __forceinline__ void fetch_ordered_ahead(const TensorMap& map, int position, int head, int batch) {
#pragma unroll
    for (int i = 0; i < Tile::ROW_BYTES / 128; ++i) tma_fetch_ahead(map, i * 64, position, head, batch);
}

/// Loads a tile of rows from `position` on, with zeros for what lies outside the tensor; `barrier` expects its bytes.
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_panels(unsigned target, const TensorMap& map, unsigned barrier, int position, int head,
                                                int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        tma_load(target + panel * Tile::ROWS * 128, map, barrier, panel * 64, position, head, batch);
}

/// Loads such a tile; `barrier` counts its bytes.
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_ordered(unsigned target, const TensorMap& map, unsigned barrier, int position,
                                                 int head, int batch) {
    barrier_arrive_expecting(barrier, Tile::BYTES);
    tma_load_panels<Tile, Order>(target, map, barrier, position, head, batch);
}
