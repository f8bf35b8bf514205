#include "memory/cluster_none.cuh"
#include "memory/tma.cuh"

/// 64 columns of a tile of keys, which each thread block loads for itself. The interface is that of panels_for_both.cuh.
__device__ __forceinline__ void load_panel(unsigned target, const TensorMap& map, unsigned barrier, int panel, int row, int head, int batch) {
    tma_load(target, map, barrier, panel * 64, row, head, batch);
}

__device__ __forceinline__ void leave_stage(unsigned barrier) { warp_arrive(barrier); }
