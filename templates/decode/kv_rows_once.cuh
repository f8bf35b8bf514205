#include "memory/copy.cuh"
#include "memory/copy_once.cuh"

/// Whether thread blocks read a sequence's keys once: not where its rows are several items, nor where sequences share their keys.
template <class Params, class Work>
__device__ __forceinline__ bool reads_once(const Params& params, const Work& work) {
    const bool own_keys = params.batch == 1 || params.cu_seqlens_kv != nullptr || params.k_stride_batch != 0;
    return work.q_len * params.group <= BLOCK_Q && own_keys;
}

/// The keys and values of one head of one sequence in global memory. The interface is that of kv_rows.cuh.
struct KvRows {
    const char *keys, *values;
    long long key_stride, value_stride;
    int kv_len;
    bool once;

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int count) const {
        load<Tile, Order, THREADS, BYTES>(target, keys + first * key_stride, key_stride, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int count) const {
        load<Tile, Order, THREADS, BYTES>(target, values + first * value_stride, value_stride, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load(unsigned target, const char* source, long long stride, int count) const {
        if (once)
            load_tile_once<Tile, THREADS, BYTES>(target, source, stride, count);
        else
            load_tile_straight<Tile, Order, THREADS, BYTES>(target, source, stride, count);
    }
};
