#include "memory/tma_1d.cuh"
#include "scheduler/grid.cuh"

/// Calls `visit(row, position, head, batch)` for each box of the tile of ROWS keys that begins with `key`: the tile's row that the
/// box begins with, and where it is in the tensor. See panels_in_pages.cuh for the other way.
template <int ROWS, class Params, class Visit>
__device__ __forceinline__ void visit_boxes(const Params& params, const Work& work, int key, long long head_stride, long long batch_stride,
                                            Visit visit) {
    visit(0, work.kv_start + key, coordinate(work.head, head_stride), coordinate(kv_batch(params, work), batch_stride));
}
