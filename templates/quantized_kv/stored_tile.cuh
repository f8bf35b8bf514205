#include "memory/copy.cuh"
#include "memory/words.cuh"

/// Rows of K or V of 8 bits on their way: 16 numbers a chunk, row by row, then the scale of each row.
template <int ROW_COUNT, int COLUMNS>
struct StoredTile {
    static constexpr int ROWS = ROW_COUNT, CHUNKS = COLUMNS / 16, ALL_CHUNKS = ROWS * CHUNKS;
    static constexpr int SCALES = 16 * ALL_CHUNKS, BYTES = SCALES + 4 * ROWS;
};

/// Where a row is, and its scale.
struct StoredRow {
    const char* bytes;
    const float* scale;
    bool exists;
};

/// Copies a float, or writes 0 without reading where `exists` is false.
__device__ __forceinline__ void copy_float_or_zero(unsigned target, const float* source, bool exists) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source), "r"(exists ? 4 : 0));
}

/// Starts to load the tile that begins with key `first`, of which there are `count`; all THREADS threads take part. What lies
/// beyond, and the columns from VALID on, become zeros. Without scales all are 1.
template <class Stored, int THREADS, int VALID, class Rows>
__device__ __forceinline__ void load_stored_tile(unsigned target, const Rows& rows, int first, int count) {
    const int thread = opaque((int)threadIdx.x);  // addresses kept over the loop of tiles would take its registers
#pragma unroll
    for (int start = 0; start < Stored::ALL_CHUNKS; start += THREADS) {
        const int index = start + thread;
        if (Stored::ALL_CHUNKS % THREADS != 0 && index >= Stored::ALL_CHUNKS) break;
        const int row = index / Stored::CHUNKS, chunk = index % Stored::CHUNKS;
        const StoredRow found = rows.row(first + row, row < count);
        copy_async_or_zero(target + 16 * index, found.bytes + 16 * chunk, found.exists && chunk * 16 < VALID);
        if (chunk > 0) continue;
        const unsigned scale = target + Stored::SCALES + 4 * row;
        if (rows.scales != nullptr)
            copy_float_or_zero(scale, found.scale, found.exists);
        else
            store_word(scale, 0x3f800000);
    }
}
