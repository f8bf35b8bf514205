#include "mask/key_bits.cuh"
#include "common/rotation.cuh"

/// Replaces each score x of the warp's part of a tile by visit(m, r, column, x): row tile m, half r (the accumulator layout
/// of mma_16bit.cuh), `column` counted from the tile's first. Rows vary fastest, so that what depends on the column
/// alone is computed once. Where visits are long, STEP column tiles are a round of a loop: always the first ones, as
/// registers can't be counted off, with the others moved up after each round.
template <int STEP, int M_TILES, int N_TILES, class Visit>
__device__ __forceinline__ void each_score(float (&scores)[M_TILES][N_TILES][4], Visit visit) {
    auto round = [&](int column) {
#pragma unroll
        for (int n = 0; n < STEP; ++n)
#pragma unroll
            for (int side = 0; side < 2; ++side)
#pragma unroll
                for (int row = 0; row < 2 * M_TILES; ++row) {
                    float& x = scores[row / 2][n][row % 2 * 2 + side];
                    x = visit(row / 2, row % 2, column + 8 * n + side, x);
                }
    };
    const int lane_column = threadIdx.x % 4 * 2;
    if constexpr (STEP == N_TILES) {
        round(lane_column);
    } else {
        static_assert(N_TILES % STEP == 0, "all rounds are alike");
#pragma unroll 1
        for (int first = 0; first < N_TILES; first += STEP) {
            round(lane_column + 8 * first);
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) rotate_columns<STEP>(scores[m]);
        }
    }
}

/// Of the 32 positions that the lane holds from `key` on (key_bits.cuh), those among the first `keys` of the tile.
template <class KvOrder>
__device__ __forceinline__ unsigned bits_inside(unsigned bits, int key, int keys) {
    const int beyond = max(32 - lane_keys<KvOrder::offset(8), KvOrder::offset(1)>(keys - key), 0);
    return __funnelshift_rc(__funnelshift_lc(0u, bits, beyond), 0u, beyond);
}

/// Masks what the bits leave out: those of each row and group of 32 positions that the lane holds.
template <int M_TILES, int N_TILES, int GROUPS>
__device__ __forceinline__ void mask_scores(float (&scores)[M_TILES][N_TILES][4], const unsigned (&kept)[M_TILES][2][GROUPS],
                                            float masked) {
#pragma unroll
    for (int row = 0; row < 2 * M_TILES; ++row)
#pragma unroll
        for (int i = 0; i < 2 * N_TILES; ++i) {
            float& x = scores[row / 2][i / 2][row % 2 * 2 + i % 2];
            x = kept[row / 2][row % 2][i / 32] >> i % 32 & 1 ? x : masked;
        }
}
