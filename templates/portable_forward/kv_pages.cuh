#include "memory/copy_pages.cuh"

/// The keys and values of one head of one sequence in a pool of pages. The interface is that of kv_rows.cuh; `places` says whose tile is
/// loaded.
template <class Places>
struct KvPages {
    Places places;
    PagedRows keys, values;
    int kv_len;

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int) const {
        keys.load<Tile, BYTES>(target, places, first);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int) const {
        values.load<Tile, BYTES>(target, places, first);
    }
};
