#include "memory/output.cuh"

/// Stores the warp's 16 rows, slots `slot` and on, of the columns from `first` on; of COLUMNS columns in all. As store_rows does.
template <class Stored, int COLUMNS, int D_TILES, class Places>
__device__ __forceinline__ void store_half(const Places& places, int slot, int first, const float (&out)[1][D_TILES][4],
                                           const float (&factor)[1][2]) {
    const int lane = (unsigned)thread_index() % 32, column = first + ColumnsInPairs::first<Stored>(lane);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = slot + 8 * r + lane / 4;
        const bool exists = places.holds(row);
        auto* address = places.target + (exists ? places.offset(row) : 0) + column;
#pragma unroll
        for (int d = 0; d < D_TILES; d += 2) {
            float x[2][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i / 2][i % 2] = out[0][d + i / 2][2 * r + i % 2] * factor[0][r];
            const int left = COLUMNS == 2 * 8 * D_TILES ? 16 : COLUMNS - 8 * d - column;  // both halves are full: nothing to compare
            ColumnsInPairs::store<Stored>(address + 8 * d, x, exists ? left : 0, lane);
        }
    }
}
