#include "memory/output.cuh"

/// Stores all columns of the warp's rows, half of them in each round of a loop: of many, the code is long, and runs once a block.
/// `store(places, half)`: stores one, as `store_rows` does. `out` is lost.
template <int COLUMNS, int D_TILES, class Places, class Store>
__device__ __forceinline__ void store_halves_of_rows(Places places, float (&out)[1][D_TILES][4], Store store) {
    constexpr int HALF = D_TILES / 2;
    static_assert(COLUMNS == 16 * HALF, "no column but what is stored");
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
        store(places, reinterpret_cast<const float(&)[1][HALF][4]>(out));
        places.target += COLUMNS / 2;
#pragma unroll
        for (int i = 0; i < 4 * HALF; ++i) out[0][i / 4][i % 4] = out[0][HALF + i / 4][i % 4];
    }
}
