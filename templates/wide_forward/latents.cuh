#include "common/math.cuh"

/// Whether V is the first columns of K, as the latents of MLA are (DeepSeek-V2, section 2.1): the call tells, by where both are.
template <class Params>
__device__ __forceinline__ bool values_are_keys(const Params& params) {
    return params.v == params.k && params.v_stride_batch == params.k_stride_batch && params.v_stride_head == params.k_stride_head &&
           params.v_stride_row == params.k_stride_row;
}

/// Where tiles of K and V come from (kv_rows.cuh, kv_pages.cuh); of latents, which are both, those of K alone.
template <bool LATENTS, class Kv>
struct KvSource {
    const Kv& kv;
    int kv_len;

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int count) const {
        kv.template load_keys<Tile, Order, THREADS, BYTES>(target, first, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int count) const {
        if constexpr (!LATENTS) kv.template load_values<Tile, Order, THREADS, BYTES>(target, first, count);
    }
};
