#include "memory/copy.cuh"

// How keys and values are copied: as all else. See kv_copies_once.cuh for the other way.

template <class Tile, class Order, int THREADS, int VALID_BYTES>
__device__ __forceinline__ void load_kv_tile(unsigned tile, const char* source, long long row_bytes, int rows) {
    load_tile_straight<Tile, Order, THREADS, VALID_BYTES>(tile, source, row_bytes, rows);
}

/// As copy_async_or_zero, of a row at `place`: nothing is read where that is negative. Told a size that is computed, ptxas 13.0 adds what it
/// lacks of 16 to the address.
__device__ __forceinline__ void copy_async_of_place(unsigned target, const void* source, long long place) {
    asm volatile("{\n.reg .pred none;\nsetp.lt.s32 none, %2, 0;\ncp.async.cg.shared.global [%0], [%1], 16, none;\n}" ::"r"(target), "l"(source),
                 "r"((int)(place >> 32)));
}
