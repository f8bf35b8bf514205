#include "memory/copy.cuh"
#include "memory/output.cuh"

// Tiles of Q: all THREADS threads take part in starting to load one. What doesn't exist becomes zeros.

/// Rows of one head. Nothing of a block runs before they are asked for, so their addresses are a step apart, as those of keys.
template <class QTile, int THREADS, int BYTES, class Element, class Order>
__device__ __forceinline__ void load_rows(unsigned tile, const RowPlaces<Element, Order>& places) {
    load_tile_straight<QTile, Order, THREADS, BYTES>(tile, (const char*)places.target, places.stride * (long long)sizeof(Element),
                                                     places.rows);
}

/// The first `rows` of a tile, whose places are anywhere, of few tiles that meet many keys: a short loop.
template <class QTile, int THREADS, int BYTES, class Places>
__device__ __forceinline__ void load_rows(unsigned tile, const Places& places, int rows) {
#pragma unroll 1
    for (int index = threadIdx.x; index < rows * QTile::CHUNKS; index += THREADS) {
        const int row = index / QTile::CHUNKS, chunk = index % QTile::CHUNKS;
        const bool exists = places.holds(row) && chunk * 16 < BYTES;
        const char* source = (const char*)(places.target + (exists ? places.offset(row) : 0)) + exists * chunk * 16;
        copy_async_or_zero(QTile::place(tile, row, chunk).address, source, exists);
    }
}
