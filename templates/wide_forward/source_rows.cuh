#include "portable_forward/kv_rows.cuh"

/// Where tiles of K and V come from, as KvStream asks for them; of latents, which are both, those of K alone.
template <bool LATENTS>
struct KvSource {
    const KvRows& kv;
    int kv_len;

    __device__ __forceinline__ explicit KvSource(const KvRows& kv) : kv(kv), kv_len(kv.kv_len) {}

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int count) const {
        kv.load_keys<Tile, Order, THREADS, BYTES>(target, first, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int count) const {
        if constexpr (!LATENTS) kv.load_values<Tile, Order, THREADS, BYTES>(target, first, count);
    }
};
