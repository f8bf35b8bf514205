#include "memory/output.cuh"

/// As `ColumnsInFours`; of four fragments of 16 bits, lanes of a pair swap halves, so that each stores eight neighbours at once.
struct ColumnsInEights : ColumnsInFours {
    static __device__ __forceinline__ int first_of_eight(int lane) { return lane % 2 * 16 + lane % 4 / 2 * 8; }

    template <class Stored>
    static __device__ __forceinline__ void join(unsigned (&all)[4], const float (&x)[4][2], int lane) {
        const bool odd = lane % 2;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            unsigned low[1], high[1];  // of the first and the last two fragments
            Stored::words(low, x[0][i], x[1][i]);
            Stored::words(high, x[2][i], x[3][i]);
            const unsigned other = __shfl_xor_sync(~0u, odd ? low[0] : high[0], 1);
            all[i] = odd ? other : low[0];
            all[2 + i] = odd ? high[0] : other;
        }
    }
};

/// `store_rows`, of 16 bits eight columns at once where there are four fragments.
template <class Stored, int COLUMNS, class Columns, int M_TILES, int D_TILES, class Places>
__device__ __forceinline__ void store_rows_in_eights(const Places& places, int slot, const float (&out)[M_TILES][D_TILES][4],
                                                     const float (&factor)[M_TILES][2], int lane = threadIdx.x % 32) {
    if constexpr (D_TILES % 4 != 0 || COLUMNS != 8 * D_TILES) return store_rows<Stored, COLUMNS, Columns>(places, slot, out, factor, lane);
    const int column = Columns::first_of_eight(lane);
#pragma unroll
    for (int row_pair = 0; row_pair < 2 * M_TILES; ++row_pair) {
        const int m = row_pair / 2, r = row_pair % 2, row = slot + 8 * row_pair + lane / 4;
        // Opaque, or they would be computed anew for each fragment.
        auto* address = places.target + opaque_long(places.offset(row) + column);
        const bool exists = places.holds(row);
#pragma unroll
        for (int d = 0; d < D_TILES; d += 4) {
            float x[4][2];
            unsigned all[4];
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i / 2][i % 2] = out[m][d + i / 2][2 * r + i % 2] * factor[m][r];
            Columns::template join<Stored>(all, x, lane);
            if (exists) store_vector(address + 8 * d, all);
        }
    }
}
