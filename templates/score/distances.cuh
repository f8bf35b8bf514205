#include "common/rotation.cuh"

/// Replaces each score x of the warp's part of a tile by visit(x, shared), where shared = at(r, column) is the same for pairs
/// that are as far from each other: half r of the rows, `column` counted from the tile's first. The rows of half 1 are 8
/// behind those of half 0, so that their fragment n shares what half 0 has in fragment n - 1. STEP as in scores.cuh.
template <int STEP, int N_TILES, class At, class Visit>
__device__ __forceinline__ void each_distance(float (&scores)[1][N_TILES][4], At at, Visit visit) {
    static_assert(N_TILES % STEP == 0, "all rounds are alike");
    const int lane_column = threadIdx.x % 4 * 2;
    float before[2] = {at(1, lane_column), at(1, lane_column + 1)};
    auto round = [&](int column) {
#pragma unroll
        for (int i = 0; i < 2 * STEP; ++i) {
            float(&x)[4] = scores[0][i / 2];
            const int side = i % 2;
            const float here = at(0, column + 8 * (i / 2) + side);
            x[side] = visit(x[side], here);
            x[2 + side] = visit(x[2 + side], before[side]);
            before[side] = here;
        }
    };
    if constexpr (STEP == N_TILES) {
        round(lane_column);
    } else {
#pragma unroll 1
        for (int first = 0; first < N_TILES; first += STEP) {
            round(lane_column + 8 * first);
            rotate_columns<STEP>(scores[0]);
        }
    }
}
