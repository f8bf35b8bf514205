#include "memory/tma.cuh"
#include "scheduler/grid.cuh"

/// Loads panels `first` to `end` - 1, 64 columns each, of the tile of ROWS keys that begins with `key`. Columns that the
/// tensor doesn't have become zeros. `barrier`, and for each panel more one `next_barrier` bytes further, expect the bytes already. See panels_in_pages.cuh for the other way.
template <int ROWS, class Params>
__device__ __forceinline__ void tma_load_columns(unsigned target, const TensorMap& map, unsigned barrier, int next_barrier, const Params& params,
                                            const Work& work, int key, int first, int end, long long head_stride, long long batch_stride) {
    const int head = coordinate(work.head, head_stride), batch = coordinate(kv_batch(params, work), batch_stride);
#pragma unroll 1
    for (int panel = first; panel < end; ++panel, target += ROWS * 128, barrier += next_barrier)
        tma_load(target, map, barrier, panel * 64, work.kv_start + key, head, batch);
}
