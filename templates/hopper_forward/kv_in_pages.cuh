#include "memory/tma_pages.cuh"
#include "scheduler/grid.cuh"

/// The same of a cache in pages.
template <class Tile, class Order, class Params>
__device__ __forceinline__ void load_kv(unsigned target, const TensorMap& map, unsigned barrier, const Params& params,
                                        const Work& work, int first, int head, long long page_stride, unsigned) {
    tma_load_pages<Tile>(target, map, barrier, params, work.sequence, first, work.kv_len, head, page_stride);
}
