#include "memory/copy.cuh"
#include "memory/pages.cuh"

/// The rows of k, or of v, of one head of a sequence. `pool` is row 0 of page 0; strides are in bytes.
template <class Params>
struct PagedRows {
    const Params& params;
    const char* pool;
    long long page_stride, row_stride;
    int sequence, kv_len;
};

/// Starts to load the tile that begins with key `first`; all THREADS threads take part. Rows behind the last key, and the bytes
/// of a row from VALID_BYTES on, become zeros.
template <class Tile, int THREADS, int VALID_BYTES, class Params>
__device__ __forceinline__ void load_paged_tile(unsigned tile, const PagedRows<Params>& rows, int first) {
#pragma unroll 4
    for (int index = threadIdx.x; index < Tile::ROWS * Tile::CHUNKS; index += THREADS) {
        const int row = index / Tile::CHUNKS, chunk = index % Tile::CHUNKS;
        PagedKey key = {-1, 0};
        if (first + row < rows.kv_len && chunk * 16 < VALID_BYTES) key = paged_key(rows.params, rows.sequence, first + row);
        const bool exists = in_pool(rows.params, key);
        const char* source = rows.pool + (exists ? key.page * rows.page_stride + key.row * rows.row_stride + chunk * 16 : 0);
        copy_async_or_zero(Tile::place(tile, row, chunk).address, source, exists);
    }
}
