#include "portable_forward/kv_pages.cuh"

/// Where tiles of K and V come from. The interface is that of source_rows.cuh.
template <bool LATENTS, class Kv>
struct KvSource {
    const Kv& kv;
    int kv_len;

    __device__ __forceinline__ explicit KvSource(const Kv& kv) : kv(kv), kv_len(kv.kv_len) {}

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int count) const {
        kv.template load_keys<Tile, Order, THREADS, BYTES>(target, first, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int count) const {
        if constexpr (!LATENTS) kv.template load_values<Tile, Order, THREADS, BYTES>(target, first, count);
    }
};
