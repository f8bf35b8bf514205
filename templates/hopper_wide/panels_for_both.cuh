#include "memory/cluster_of_two.cuh"
#include "memory/tma.cuh"

/// 64 columns of a tile of keys. Of two thread blocks of a cluster, which go over the same keys, each loads every other panel, for
/// both: the L2 cache is read once.
__device__ __forceinline__ void load_panel(unsigned target, const TensorMap& map, unsigned barrier, int panel, int row, int head, int batch) {
    if (cluster_blocks() == 1)
        tma_load(target, map, barrier, panel * 64, row, head, batch);
    else if (panel % 2 == cluster_rank())
        tma_load_for_both(target, map, barrier, panel * 64, row, head, batch);
}

/// A warp leaves what the barrier guards: each of its first lanes tells a thread block of the cluster, which may load for both then.
__device__ __forceinline__ void leave_stage(unsigned barrier) {
    const unsigned lane = threadIdx.x % 32;
    if (lane < cluster_blocks()) barrier_arrive_there(place_in(barrier, cluster_rank() ^ lane));
}
