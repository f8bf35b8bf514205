#include "memory/pages.cuh"
#include "memory/tma.cuh"
#include "scheduler/grid.cuh"

/// As in panels_in_rows.cuh, of a cache in pages, in boxes that lie in one page each. What lies behind the last key, and pages that
/// aren't in the pool, become zeros.
template <int ROWS, class Params>
__device__ __forceinline__ void tma_load_columns(unsigned target, const TensorMap& map, unsigned barrier, int next_barrier, const Params& params,
                                            const Work& work, int key, int first, int end, long long head_stride, long long page_stride) {
    const int head = coordinate(work.head, head_stride);
#pragma unroll 1
    for (int row = 0; row < ROWS; row += params.box_rows) {
        PagedKey place = {-1, 0};
        if (key + row < work.kv_len) place = paged_key(params, work.sequence, key + row);
        // Behind the rows of the pages: a map may have one page alone, whose number is 0 then.
        if (!in_pool(params, place)) place = {0, params.page_rows};
#pragma unroll 1
        for (int panel = first; panel < end; ++panel)
            tma_load(target + (panel - first) * ROWS * 128 + row * 128, map, barrier + (panel - first) * next_barrier, panel * 64, place.row, head,
                     coordinate(place.page, page_stride));
    }
}
