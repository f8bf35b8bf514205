#include "memory/copy_pages.cuh"

/// The keys and values of one head of one sequence in a pool of pages. The interface is that of kv_rows.cuh.
template <class Params>
struct KvPages {
    PagedRows<Params> keys, values;
    int kv_len;

    template <class Element>
    __device__ __forceinline__ KvPages(const Params& params, const Element* k, const Element* v, int sequence, int kv_len)
        : keys{params, (const char*)k, bytes<Element>(params.k_stride_batch), bytes<Element>(params.k_stride_row), sequence, kv_len},
          values{params, (const char*)v, bytes<Element>(params.v_stride_batch), bytes<Element>(params.v_stride_row), sequence, kv_len},
          kv_len(kv_len) {}

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int) const {
        load_paged_tile<Tile, THREADS, BYTES>(target, keys, first);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int) const {
        load_paged_tile<Tile, THREADS, BYTES>(target, values, first);
    }

private:
    template <class Element>
    static __device__ __forceinline__ long long bytes(long long stride) {
        return stride * (long long)sizeof(Element);
    }
};
