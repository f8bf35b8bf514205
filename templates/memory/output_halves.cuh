#include "memory/output.cuh"

/// Stores all columns of the warp's rows, as `store_rows` does, half of them in each round of a loop: of many, the code is long, and
/// runs once a block. `out` is lost.
template <class Stored, int COLUMNS, class Columns = ColumnsInPairs, int D_TILES, class Places>
__device__ __forceinline__ void store_halves_of_rows(Places places, int slot, float (&out)[1][D_TILES][4], const float (&factor)[1][2]) {
    constexpr int HALF = D_TILES / 2;
    static_assert(COLUMNS == 16 * HALF, "no column but what is stored");
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
        store_rows<Stored, COLUMNS / 2, Columns>(places, slot, reinterpret_cast<const float(&)[1][HALF][4]>(out), factor);
        places.target += COLUMNS / 2;
#pragma unroll
        for (int i = 0; i < 4 * HALF; ++i) out[0][i / 4][i % 4] = out[0][HALF + i / 4][i % 4];
    }
}
