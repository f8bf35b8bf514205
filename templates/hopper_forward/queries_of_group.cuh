#include "forward/group_queries.cuh"
#include "memory/tma_5d.cuh"
#include "mma/warpgroup.cuh"

// How TMA brings the rows of Q, where a block's are of all heads that stand together: by maps with the axes (column, head of the
// group, query, group, batch).

/// Of a warpgroup's rows, those that loads bring.
template <class Params>
__device__ __forceinline__ int loaded_rows(const Params& params) { return QuerySlots(params).queries() * params.row_heads; }

/// Their bytes.
template <class Tile, class Params>
__device__ __forceinline__ int query_bytes(const Params& params) { return loaded_rows(params) * Tile::ROW_BYTES; }

/// Brings them into the L2 cache.
template <class Tile, class Order>
__device__ __forceinline__ void fetch_queries_ahead(const TensorMap& map, int query, int group, int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel) tma_fetch_5d_ahead(map, panel * 64, 0, query, group, batch);
}

/// Loads them; `barrier` expects their bytes.
template <class Tile, class Order>
__device__ __forceinline__ void load_queries(unsigned target, const TensorMap& map, unsigned barrier, int query, int group,
                                             int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        tma_load_5d(target + panel * Tile::ROWS * 128, map, barrier, panel * 64, 0, query, group, batch);
}

/// Zeros in rows that no load brings: what is no number there would tell a warp that its maxima don't hold. By a warpgroup.
template <class Tile, class Params>
__device__ __forceinline__ void clear_other_rows(const Params& params, unsigned queries, int warpgroup) {
    if (loaded_rows(params) < Tile::ROWS) clear_rows<Tile, 128>(queries, loaded_rows(params), 1 + warpgroup);
}
