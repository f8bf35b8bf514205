#include "memory/cluster_none.cuh"
#include "memory/tma.cuh"

/// COUNT panels of 64 columns, from panel `first` on, of a box of rows of a tile of ROWS keys, which each thread block loads for itself.
/// Barriers of panels are `next_barrier` bytes apart. By one lane. The interface is that of panels_for_both.cuh.
template <int COUNT, int ROWS>
__device__ __forceinline__ void load_panels(unsigned target, const TensorMap& map, unsigned barrier, int next_barrier, int first, int row,
                                            int head, int batch) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        tma_load(target + i * ROWS * 128, map, barrier + i * next_barrier, (first + i) * 64, row, head, batch);
}

__device__ __forceinline__ void leave_stage(unsigned barrier) {
    if ((unsigned)thread_index() % 32 == 0) barrier_arrive(barrier);
}
