/// The keys and values of one head of one sequence in global memory. Strides are in bytes. `load_kv_tile`: see kv_copies.cuh.
struct KvRows {
    const char *keys, *values;
    long long key_stride, value_stride;
    int kv_len;

    /// Starts to load a tile of which `count` rows exist.
    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int count) const {
        load_kv_tile<Tile, Order, THREADS, BYTES>(target, keys + first * key_stride, key_stride, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int count) const {
        load_kv_tile<Tile, Order, THREADS, BYTES>(target, values + first * value_stride, value_stride, count);
    }
};
