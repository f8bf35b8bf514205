#include "memory/tma.cuh"
#include "scheduler/grid.cuh"

/// Where the keys of a sequence are in a tensor. See keys_in_pages.cuh for the other way.
template <int ROWS>
struct Keys {
    using Place = int;  // the first row of a tile of ROWS keys

    int head, batch, first_row;

    template <class Params>
    __device__ __forceinline__ Keys(const Params& params, const Work& work, long long head_stride, long long batch_stride)
        : head(coordinate(work.head, head_stride)), batch(coordinate(kv_batch(params, work), batch_stride)), first_row(work.kv_start) {}

    template <class Params>
    __device__ __forceinline__ Place find(const Params&, const Work&, int key) const {
        return first_row + key;
    }

    /// Loads COUNT panels of a tile, 64 columns each, from panel `first` on. Columns that the tensor doesn't have become zeros. `barrier`,
    /// and for each panel more one `next_barrier` bytes further, expect the bytes already. By a whole warp.
    template <int COUNT, class Params>
    __device__ __forceinline__ void load(unsigned target, const TensorMap& map, unsigned barrier, int next_barrier, const Params&,
                                         int first, Place row) const {
        if (!elected_lane()) return;
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            tma_load(target + i * ROWS * 128, map, barrier + i * next_barrier, (first + i) * 64, row, head, batch);
    }
};
