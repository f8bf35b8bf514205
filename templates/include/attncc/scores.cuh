/// Replaces each score x of the warp's part of a tile by visit(m, r, column, x): row tile m, half r (the accumulator layout
/// of mma_16bit.cuh), `column` counted from the tile's first. Rows vary fastest, so that what depends on the column
/// alone is computed once.
template <int M_TILES, int N_TILES, class Visit>
__device__ __forceinline__ void each_score(float (&scores)[M_TILES][N_TILES][4], Visit visit) {
    const int lane_column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
            for (int row = 0; row < 2 * M_TILES; ++row) {
                float& x = scores[row / 2][n][row % 2 * 2 + side];
                x = visit(row / 2, row % 2, lane_column + 8 * n + side, x);
            }
}
