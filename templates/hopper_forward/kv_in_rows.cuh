#include "scheduler/grid.cuh"

/// Loads the tile of K, or of V, that begins with key `first` of a sequence; `barrier` expects its bytes. `operand` is
/// 0 and 1, for blocks that load for each other. See kv_in_pages.cuh for the other way.
template <class Tile, class Order, class Params>
__device__ __forceinline__ void load_kv(unsigned target, const TensorMap& map, unsigned barrier, const Params& params,
                                        const Work& work, int first, int head, long long batch_stride, unsigned operand) {
    Cluster::load_panels<Tile, Order>(target, map, barrier, work.kv_start + first, head,
                                      coordinate(kv_batch(params, work), batch_stride), operand);
}
