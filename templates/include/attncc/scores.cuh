#include "attncc/key_bits.cuh"
#include "attncc/rotation.cuh"

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

/// Masks all but the first `keys` positions of a tile, and those that bits(m, r, key, group) leaves out of the 32 that the lane
/// holds from that position on (key_bits.cuh), group by group. Row by row, and with a shift last: seven bits are then tested at
/// once (R2P).
template <class KvOrder, int M_TILES, int N_TILES, class Bits>
__device__ __forceinline__ void mask_scores(float (&scores)[M_TILES][N_TILES][4], int keys, float masked, Bits bits) {
    const int lane_column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int row = 0; row < 2 * M_TILES; ++row)
#pragma unroll
        for (int first = 0; first < N_TILES; first += 16) {
            const int key = KvOrder::offset(lane_column + 8 * first);
            const int beyond = max(32 - lane_keys<KvOrder::offset(8), KvOrder::offset(1)>(keys - key), 0);
            const unsigned inside = __funnelshift_lc(0u, bits(row / 2, row % 2, key, first / 16), beyond);
            const unsigned kept = __funnelshift_rc(inside, 0u, beyond);
#pragma unroll
            for (int bit = 0; bit < 2 * min(N_TILES - first, 16); ++bit) {
                float& x = scores[row / 2][first + bit / 2][row % 2 * 2 + bit % 2];
                x = kept >> bit & 1 ? x : masked;
            }
        }
}
