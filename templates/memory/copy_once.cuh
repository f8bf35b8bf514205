#include "memory/layout.cuh"
#include "common/math.cuh"

// Copies of what is read once: it leaves the L2 cache ahead of what is needed again, as code, lengths and partial results.

/// As copy_async_or_zero (memory/copy.cuh). The policy is a constant to the compiler.
__device__ __forceinline__ void copy_once_or_zero(unsigned target, const void* source, bool exists) {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(target), "l"(source), "r"(exists ? 16 : 0),
                 "l"(policy));
}

/// As load_tile_straight (memory/copy.cuh), of a tile whose rows stand in order.
template <class Tile, int THREADS, int VALID_BYTES>
__device__ __forceinline__ void load_tile_once(unsigned tile, const char* source, long long row_bytes, int rows) {
    constexpr int LANES = Tile::CHUNKS >= 8 ? 8 : Tile::CHUNKS >= 4 ? 4 : 2, STEP = THREADS / LANES;
    const unsigned thread = opaque(threadIdx.x), lane = thread % LANES;
    const int thread_row = thread / LANES;
    const char* address = opaque_pointer(source) + thread_row * row_bytes + lane * 16;
#pragma unroll
    for (int start = 0; start < Tile::ROWS; start += STEP, address += STEP * row_bytes) {
        const int row = thread_row + start;
        if (start + STEP > Tile::ROWS && row >= Tile::ROWS) break;
#pragma unroll
        for (int column = 0; column < Tile::CHUNKS; column += LANES) {
            const int chunk = column + lane;
            if (column + LANES > Tile::CHUNKS && chunk >= Tile::CHUNKS) break;
            const bool valid = VALID_BYTES >= (column + LANES) * 16 || chunk * 16 < VALID_BYTES;
            copy_once_or_zero(Tile::place(tile, row, chunk).address, address + column * 16, valid & (row < rows));
        }
    }
}
