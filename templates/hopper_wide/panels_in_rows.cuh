#include "memory/tma.cuh"
#include "scheduler/grid.cuh"

/// A tile of ROWS keys, from `key` on. See panels_in_pages.cuh for the other way.
template <int ROWS>
struct Boxes {
    int key;

    template <class Params>
    __device__ __forceinline__ Boxes(const Params&, const Work&, int key) : key(key) {}

    /// Loads COUNT panels, 64 columns each, from panel `first` on. Columns that the tensor doesn't have become zeros. Barriers expect the
    /// bytes already. By a whole warp.
    template <int COUNT, class Params>
    __device__ __forceinline__ void load(unsigned target, const TensorMap& map, unsigned barrier, int next_barrier, const Params& params,
                                         const Work& work, int first, long long head_stride, long long batch_stride) const {
        const int head = coordinate(work.head, head_stride), batch = coordinate(kv_batch(params, work), batch_stride);
        const int row = work.kv_start + key;
        if (elected_lane()) load_panels<COUNT, ROWS>(target, map, barrier, next_barrier, first, row, head, batch);
    }

    template <int COUNT, class Params>
    __device__ __forceinline__ void fetch(const TensorMap& map, const Params& params, const Work& work, long long head_stride,
                                          long long batch_stride) const {
        const int head = coordinate(work.head, head_stride), batch = coordinate(kv_batch(params, work), batch_stride);
        const int row = work.kv_start + key;
        if (elected_lane()) fetch_panels<COUNT>(map, row, head, batch);
    }
};
