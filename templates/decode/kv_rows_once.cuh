#include "memory/copy_once.cuh"

/// The keys and values of one head of one sequence in global memory, which few thread blocks read. The interface is that of kv_rows.cuh.
struct KvRows {
    const char *keys, *values;
    long long key_stride, value_stride;
    int kv_len;

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int count) const {
        load_tile_once<Tile, THREADS, BYTES>(target, keys + first * key_stride, key_stride, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int count) const {
        load_tile_once<Tile, THREADS, BYTES>(target, values + first * value_stride, value_stride, count);
    }
};
