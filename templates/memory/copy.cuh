#include "memory/layout.cuh"
#include "common/math.cuh"

// Asynchronous copies from global to shared memory (cp.async, sm_80 and later).

__device__ __forceinline__ void copy_async(unsigned target, const void* source) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(source));
}

/// Copies 16 bytes, or writes zeros without reading where `exists` is false: the source may be any address then.
__device__ __forceinline__ void copy_async_or_zero(unsigned target, const void* source, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(exists ? 16 : 0));
}

/// Closes a group: the copies that this thread issued since the last one.
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;"); }

/// Waits until at most PENDING of this thread's latest groups are under way.
template <int PENDING>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/// PANELS panels of WIDTH bytes, from chunk FIRST on: neighbouring threads take neighbouring chunks of a row.
template <class Tile, class Order, int THREADS, int VALID_BYTES, bool CHECKED, int WIDTH, int FIRST, int PANELS>
__device__ __forceinline__ void load_panels(unsigned tile, const char* source, long long row_bytes, int rows) {
    constexpr int CHUNKS = WIDTH / 16, STEP = THREADS / CHUNKS;
    const unsigned thread = opaque(threadIdx.x);
    const int thread_row = thread / CHUNKS, chunk = thread % CHUNKS;
    const char* address = source + Order::offset(thread_row) * row_bytes + (FIRST + chunk) * 16;
    const unsigned target = tile + Tile::panel(FIRST);
    const unsigned thread_target = target + Tile::template in_panel<WIDTH>(thread_row, chunk);
#pragma unroll
    for (int start = 0; start < Tile::ROWS; start += STEP, address += Order::offset(STEP) * row_bytes) {
        const int row = thread_row + start;
        if (start + STEP > Tile::ROWS && row >= Tile::ROWS) break;
        // Offsets add up for whole groups of 8 rows, after which the swizzle repeats too.
        const bool inside = STEP % 8 == 0 ? Order::offset(thread_row) < rows - Order::offset(start) : Order::offset(row) < rows;
        const unsigned row_target =
            STEP % 8 == 0 ? thread_target + start * WIDTH : target + Tile::template in_panel<WIDTH>(row, chunk);
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            const int first = FIRST + panel * CHUNKS;
            const bool whole = VALID_BYTES >= (first + CHUNKS) * 16;  // the panel holds no padding columns
            const unsigned chunk_target = row_target + Tile::panel(panel * CHUNKS);
            if (whole && !CHECKED) {
                copy_async(chunk_target, address + panel * WIDTH);
            } else {
                const bool exists = (whole || (first + chunk) * 16 < VALID_BYTES) & (!CHECKED || inside);
                copy_async_or_zero(chunk_target, address + panel * WIDTH, exists);
            }
        }
    }
}

template <class Tile, class Order, int THREADS, int VALID_BYTES, bool CHECKED>
__device__ __forceinline__ void load_columns(unsigned tile, const char* source, long long row_bytes, int rows) {
    constexpr int WIDE = Tile::WIDE_END, HALF = Tile::HALF_END;
    load_panels<Tile, Order, THREADS, VALID_BYTES, CHECKED, 128, 0, WIDE / 8>(tile, source, row_bytes, rows);
    load_panels<Tile, Order, THREADS, VALID_BYTES, CHECKED, 64, WIDE, (HALF - WIDE) / 4>(tile, source, row_bytes, rows);
    load_panels<Tile, Order, THREADS, VALID_BYTES, CHECKED, 32, HALF, (Tile::CHUNKS - HALF) / 2>(tile, source, row_bytes, rows);
}

/// Starts to load a tile whose rows stand as `Order` says; all THREADS threads take part. `source` is the tile's first row,
/// `rows` how many positions there are from it on: what lies beyond, and the bytes of a row from VALID_BYTES on, become
/// zeros.
template <class Tile, class Order, int THREADS, int VALID_BYTES>
__device__ __forceinline__ void load_tile(unsigned tile, const void* source, long long row_bytes, int rows) {
    const char* bytes = static_cast<const char*>(source);
    if (Order::whole(0, rows))
        load_columns<Tile, Order, THREADS, VALID_BYTES, false>(tile, bytes, row_bytes, rows);
    else
        load_columns<Tile, Order, THREADS, VALID_BYTES, true>(tile, bytes, row_bytes, rows);
}

/// Loads a tile without a branch, for code that runs under products. No rows at all make a tile of zeros.
template <class Tile, class Order, int THREADS, int VALID_BYTES>
__device__ __forceinline__ void load_tile_straight(unsigned tile, const char* source, long long row_bytes, int rows) {
    load_columns<Tile, Order, THREADS, VALID_BYTES, true>(tile, opaque_pointer(source), row_bytes, rows);
}
