#include "memory/pages.cuh"
#include "memory/tma.cuh"
#include "scheduler/grid.cuh"

/// As in panels_in_rows.cuh, of a cache in pages, in boxes that lie in one page each, of 8 rows or more. What lies behind the last key,
/// and pages that aren't in the pool, become zeros. The table is read at once, before the tile has a place in shared memory: each lane
/// keeps where one box is.
template <int ROWS>
struct Boxes {
    PagedKey own = {-1, 0};

    template <class Params>
    __device__ __forceinline__ Boxes(const Params& params, const Work& work, int key) {
        const int row = threadIdx.x % 32 * params.box_rows;
        if (row < ROWS && key + row < work.kv_len) own = paged_key(params, work.sequence, key + row);
        // Behind the rows of the pages: a map may have one page alone, whose number is 0 then.
        if (!in_pool(params, own)) own = {0, params.page_rows};
    }

    template <int COUNT, class Params>
    __device__ __forceinline__ void load(unsigned target, const TensorMap& map, unsigned barrier, int next_barrier, const Params& params,
                                         const Work& work, int first, long long head_stride, long long page_stride) const {
        const int head = coordinate(work.head, head_stride);
#pragma unroll 1
        for (int row = 0, box = 0; row < ROWS; row += params.box_rows, ++box) {
            const int page = coordinate(__shfl_sync(~0u, own.page, box), page_stride), place = __shfl_sync(~0u, own.row, box);
            if (elected_lane()) load_panels<COUNT, ROWS>(target + row * 128, map, barrier, next_barrier, first, place, head, page);
        }
    }

    template <int COUNT, class Params>
    __device__ __forceinline__ void fetch(const TensorMap& map, const Params& params, const Work& work, long long head_stride,
                                          long long batch_stride) const {
        const int head = coordinate(work.head, head_stride);
#pragma unroll 1
        for (int row = 0, box = 0; row < ROWS; row += params.box_rows, ++box) {
            const int page = coordinate(__shfl_sync(~0u, own.page, box), batch_stride), place = __shfl_sync(~0u, own.row, box);
            if (elected_lane()) fetch_panels<COUNT>(map, place, head, page);
        }
    }
};
