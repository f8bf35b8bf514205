#include "memory/pages.cuh"
#include "memory/tma.cuh"

/// The tile of keys that begins with key `first`, in boxes that lie in one page each; what lies behind the last key, and pages
/// that aren't in the pool, become zeros. `barrier` expects the tile's bytes already.
template <class Tile, class Params>
__device__ __forceinline__ void tma_load_pages(unsigned target, const TensorMap& map, unsigned barrier, const Params& params,
                                               int sequence, int first, int kv_len, int head, long long page_stride) {
#pragma unroll 1
    for (int row = 0; row < Tile::ROWS; row += params.box_rows) {
        PagedKey key = {-1, 0};
        if (first + row < kv_len) key = paged_key(params, sequence, first + row);
        // Behind the rows of the pages: a map may have one page alone, whose number is 0 then.
        if (!in_pool(params, key)) key = {0, params.page_rows};
#pragma unroll
        for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
            tma_load(target + panel * Tile::ROWS * 128 + row * 128, map, barrier, panel * 64, key.row, head,
                     coordinate(key.page, page_stride));
    }
}
