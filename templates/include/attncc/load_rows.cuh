#include "attncc/copy.cuh"

/// Starts to load a tile of Q; all THREADS threads take part. What doesn't exist becomes zeros.
template <class QTile, int THREADS, int BYTES, class Places>
__device__ __forceinline__ void load_rows(unsigned tile, const Places& places) {
#pragma unroll 1
    for (int index = threadIdx.x; index < QTile::ROWS * QTile::CHUNKS; index += THREADS) {
        const int row = index / QTile::CHUNKS, chunk = index % QTile::CHUNKS;
        const bool exists = places.holds(row) && chunk * 16 < BYTES;
        const char* source = (const char*)(places.target + (exists ? places.offset(row) : 0)) + exists * chunk * 16;
        copy_async_or_zero(QTile::place(tile, row, chunk).address, source, exists);
    }
}
