#include "memory/cluster_of_two.cuh"
#include "memory/tma.cuh"

/// COUNT panels of 64 columns, from panel `first` on, of a box of rows of a tile of ROWS keys. Barriers of panels are `next_barrier` bytes
/// apart. By one lane. Of two thread blocks of a cluster, which go over the same keys, each loads every other panel, for both: the L2
/// cache is read once.
template <int COUNT, int ROWS>
__device__ __forceinline__ void load_panels(unsigned target, const TensorMap& map, unsigned barrier, int next_barrier, int first, int row,
                                            int head, int batch) {
    const bool alone = cluster_blocks() == 1;
    const int own = (first ^ cluster_rank()) & 1;
    if (alone) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            tma_load(target + i * ROWS * 128, map, barrier + i * next_barrier, (first + i) * 64, row, head, batch);
    } else {
        target += own * ROWS * 128, barrier += own * next_barrier, first += own;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2)
            if (i + own < COUNT)
                tma_load_for_both(target + i * ROWS * 128, map, barrier + i * next_barrier, (first + i) * 64, row, head, batch);
    }
}

/// A warp leaves what the barrier guards: each of its first lanes tells a thread block of the cluster, which may load for both then.
__device__ __forceinline__ void leave_stage(unsigned barrier) {
    const unsigned lane = (unsigned)thread_index() % 32;
    if (lane < cluster_blocks()) barrier_arrive_there(place_in(barrier, cluster_rank() ^ lane));
}
