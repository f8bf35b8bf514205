#include "memory/copy.cuh"

/// Starts to load the first `rows` of a tile of Q, whose places are anywhere, of BYTES each: each of THREADS / 32 warps finds the place of a
/// row once, and its lanes take neighbouring chunks. What doesn't exist becomes zeros.
template <class QTile, int THREADS, int BYTES, class Places>
__device__ __forceinline__ void load_rows_by_warps(unsigned tile, const Places& places, int rows) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int row = threadIdx.x / 32; row < rows; row += THREADS / 32) {
        const bool holds = places.holds(row);
        const char* source = (const char*)(places.target + (holds ? places.offset(row) : 0));
#pragma unroll
        for (int first = 0; first < QTile::CHUNKS; first += 32) {
            const int chunk = first + lane;
            if (chunk < QTile::CHUNKS)
                copy_async_or_zero(QTile::place(tile, row, chunk).address, source + chunk * 16, holds && chunk * 16 < BYTES);
        }
    }
}
