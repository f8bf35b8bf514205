#include "memory/copy_once.cuh"

/// Whether thread blocks read a sequence's keys once: not where its rows are several items, nor where sequences share their keys.
template <class Params, class Work>
__device__ __forceinline__ bool reads_once(const Params& params, const Work& work) {
    return work.q_len * params.group <= BLOCK_Q && (params.cu_seqlens_kv != nullptr || params.k_stride_batch != 0);
}

/// The keys and values of one head of one sequence in global memory. The interface is that of kv_rows.cuh.
struct KvRows {
    const char *keys, *values;
    long long key_stride, value_stride;
    int kv_len;
    unsigned long long policy;

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int count) const {
        load_tile_once<Tile, THREADS, BYTES>(target, keys + first * key_stride, key_stride, count, policy);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int count) const {
        load_tile_once<Tile, THREADS, BYTES>(target, values + first * value_stride, value_stride, count, policy);
    }
};
