#include "attncc/tma.cuh"

/// A tile whose rows stand as `Order` says, its first at `position`; what lies outside the tensor becomes zeros.
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_ordered(unsigned target, const TensorMap& map, unsigned barrier, int position,
                                                 int head, int batch) {
    tma_load_tile<Tile>(target, map, barrier, position, head, batch);
}
