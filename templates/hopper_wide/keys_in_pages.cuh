#include "memory/pages.cuh"
#include "memory/tma.cuh"
#include "scheduler/grid.cuh"

/// As in keys_in_rows.cuh, of a cache in pages, in boxes that lie in one page each, of 8 rows or more. What lies behind the last key, and
/// pages that aren't in the pool, become zeros.
template <int ROWS>
struct Keys {
    using Place = PagedKey;  // of a tile's box: each lane has another

    int head;
    bool one_page;

    template <class Params>
    __device__ __forceinline__ Keys(const Params&, const Work& work, long long head_stride, long long page_stride)
        : head(coordinate(work.head, head_stride)), one_page(page_stride == 0) {}

    /// Reads the table of pages. To be called before the tile has a place in shared memory, so that nothing waits for it.
    template <class Params>
    __device__ __forceinline__ Place find(const Params& params, const Work& work, int key) const {
        Place own = {-1, 0};
        const int row = (unsigned)thread_index() % 32 * params.box_rows;
        if (row < ROWS && key + row < work.kv_len) own = paged_key(params, work.sequence, key + row);
        // Behind the rows of the pages: a map may have one page alone, whose number is 0 then.
        if (!in_pool(params, own)) own = {0, params.page_rows};
        return own;
    }

    template <int COUNT, class Params>
    __device__ __forceinline__ void load(unsigned target, const TensorMap& map, unsigned barrier, int next_barrier, const Params& params,
                                         int first, const Place& own) const {
#pragma unroll 1
        for (int box = 0; box * params.box_rows < ROWS; ++box) {
            const int page = one_page ? 0 : __shfl_sync(~0u, own.page, box), row = __shfl_sync(~0u, own.row, box);
            const unsigned rows = target + box * params.box_rows * 128;
            if (!elected_lane()) continue;
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                tma_load(rows + i * ROWS * 128, map, barrier + i * next_barrier, (first + i) * 64, row, head, page);
        }
    }
};
