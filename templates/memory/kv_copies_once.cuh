#include "memory/layout.cuh"
#include "common/math.cuh"

// Copies of keys and values that are read once: they leave the L2 cache ahead of what is needed again, as code, lengths and partial
// results. The interface is that of kv_copies.cuh.

/// A constant to the compiler.
__device__ __forceinline__ unsigned long long evict_first() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/// As copy_async_or_zero (memory/copy.cuh).
__device__ __forceinline__ void copy_once_or_zero(unsigned target, const void* source, bool exists) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(target), "l"(source), "r"(exists ? 16 : 0),
                 "l"(evict_first()));
}

__device__ __forceinline__ void copy_async_of_place(unsigned target, const void* source, long long place) {
    asm volatile("{\n.reg .pred none;\nsetp.lt.s32 none, %2, 0;\ncp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, none, %3;\n}" ::"r"(target),
                 "l"(source), "r"((int)(place >> 32)), "l"(evict_first()));
}

/// As load_tile_straight (memory/copy.cuh), of a tile whose rows stand in order.
template <class Tile, class, int THREADS, int VALID_BYTES>
__device__ __forceinline__ void load_kv_tile(unsigned tile, const char* source, long long row_bytes, int rows) {
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
