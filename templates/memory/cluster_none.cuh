#include "memory/barrier.cuh"

/// A warp that leaves stages of its own block alone.
struct ConsumerRelease {
    __device__ __forceinline__ explicit ConsumerRelease(unsigned) {}
    __device__ __forceinline__ void arrive(unsigned barrier) const { warp_arrive(barrier); }
};

/// Thread blocks that load all their tiles themselves. The interface is that of cluster_of_two.cuh.
struct Cluster {
    static constexpr __device__ int blocks() { return 1; }
    static constexpr __device__ int rank() { return 0; }
    static __device__ __forceinline__ void begin() {}
    static __device__ __forceinline__ void end() {}

    template <class Tile, class Order>
    static __device__ __forceinline__ void load_panels(unsigned target, const TensorMap& map, unsigned barrier, int position,
                                                       int head, int batch, unsigned) {
        tma_load_panels<Tile, Order>(target, map, barrier, position, head, batch);
    }

    static __device__ __forceinline__ void load_bytes(unsigned target, const unsigned char* source, int bytes, unsigned barrier) {
        bulk_load(target, source, bytes, barrier);
    }

    static __device__ __forceinline__ void send(unsigned, unsigned, int, unsigned) {}
    static __device__ __forceinline__ void tell(unsigned, int, unsigned) {}
    static __device__ __forceinline__ void arrive_at_other(unsigned) {}
};
