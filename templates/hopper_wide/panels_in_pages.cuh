#include "memory/pages.cuh"
#include "memory/tma_1d.cuh"
#include "scheduler/grid.cuh"

/// As in panels_in_rows.cuh, of a cache in pages, in boxes that lie in one page each. What lies behind the last key, and pages that
/// aren't in the pool, become zeros.
template <int ROWS, class Params, class Visit>
__device__ __forceinline__ void visit_boxes(const Params& params, const Work& work, int key, long long head_stride, long long page_stride,
                                            Visit visit) {
    const int head = coordinate(work.head, head_stride);
#pragma unroll 1
    for (int row = 0; row < ROWS; row += params.box_rows) {
        PagedKey place = {-1, 0};
        if (key + row < work.kv_len) place = paged_key(params, work.sequence, key + row);
        // Behind the rows of the pages: a map may have one page alone, whose number is 0 then.
        if (!in_pool(params, place)) place = {0, params.page_rows};
        visit(row, place.row, head, coordinate(place.page, page_stride));
    }
}
