#include "portable_forward/kv_pages.cuh"

/// As load_paged_tile (copy_pages.cuh), for wide rows: a warp has rows, whose chunks its lanes copy, and looks at the table once for
/// each: lane i for its i-th row.
template <class Tile, int THREADS, int VALID_BYTES, class Params>
__device__ __forceinline__ void load_page_rows(unsigned tile, const PagedRows<Params>& rows, int first) {
    constexpr int EACH = (Tile::ROWS + THREADS / 32 - 1) / (THREADS / 32);  // rows of a warp
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * EACH;
#pragma unroll 1
    for (int start = own; start < min(own + EACH, Tile::ROWS); start += 32) {
        PagedKey key = {-1, 0};
        if (first + start + lane < rows.kv_len) key = paged_key(rows.params, rows.sequence, first + start + lane);
        const long long place = in_pool(rows.params, key) ? key.page * rows.page_stride + key.row * rows.row_stride : -1;
#pragma unroll 1
        for (int row = start; row < min(min(start + 32, own + EACH), Tile::ROWS); ++row) {
            const long long from = __shfl_sync(~0u, place, row - start);
#pragma unroll
            for (int chunk = lane; chunk < Tile::CHUNKS; chunk += 32) {
                const bool exists = from >= 0 && chunk * 16 < VALID_BYTES;
                copy_async_or_zero(Tile::place(tile, row, chunk).address, rows.pool + (exists ? from + chunk * 16 : 0), exists);
            }
        }
    }
}

/// Where tiles of K and V come from. The interface is that of source_rows.cuh.
template <bool LATENTS>
struct KvSource {
    const KvPages<Params>& kv;
    int kv_len;

    __device__ __forceinline__ explicit KvSource(const KvPages<Params>& kv) : kv(kv), kv_len(kv.kv_len) {}

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int) const {
        load_page_rows<Tile, THREADS, BYTES>(target, kv.keys, first);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int) const {
        if constexpr (!LATENTS) load_page_rows<Tile, THREADS, BYTES>(target, kv.values, first);
    }
};
