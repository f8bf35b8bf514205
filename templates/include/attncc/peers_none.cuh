#include "attncc/barrier.cuh"

/// Thread blocks that load all their keys and values themselves. The interface is that of peers_paired.cuh.
struct Peers {
    static __device__ __forceinline__ int arrivals(int own) { return own; }
    static __device__ __forceinline__ void begin() {}
    static __device__ __forceinline__ void end() {}
    static __device__ __forceinline__ void arrive(unsigned barrier) { warp_arrive(barrier); }

    template <class Tile, class Order>
    static __device__ __forceinline__ void load(unsigned target, const TensorMap& map, unsigned barrier, int position, int head,
                                                int batch, unsigned) {
        tma_load_ordered<Tile, Order>(target, map, barrier, position, head, batch);
    }
};
