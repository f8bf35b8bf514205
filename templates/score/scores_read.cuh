#include "common/rotation.cuh"

/// `each_score` (scores.cuh) for what reads key lines (key_lines.cuh), of the first STEP column tiles:
/// visit(m, r, column, x, entry). Rows vary fastest, so that what depends on the column alone is computed once.
template <int STEP, int M_TILES, int N_TILES, class Entries, class Visit>
__device__ __forceinline__ void each_score_read(float (&scores)[M_TILES][N_TILES][4], int first_tile,
                                                const Entries& entries, Visit visit) {
    const int column = threadIdx.x % 4 * 2 + 8 * first_tile;
#pragma unroll
    for (int n = 0; n < STEP; ++n)
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
            for (int row = 0; row < 2 * M_TILES; ++row) {
                float& x = scores[row / 2][n][row % 2 * 2 + side];
                x = visit(row / 2, row % 2, column + 8 * n + side, x, entries.at(row, n, side));
            }
}

/// Of STEP column tiles so many in a round, whose addresses take registers; and where they are pieces of bytes.
template <int STEP>
struct ReadStep {
    static constexpr int VALUE = STEP % 4 == 0 ? 4 : STEP % 2 == 0 ? 2 : 1, OF_BYTES = STEP % 8 == 0 ? 8 : VALUE;
};

/// The same of all column tiles, in rounds of STEP, each of which reads its entries: read(entries, key).
template <template <int> class Entries, int STEP, int M_TILES, int N_TILES, class Read, class Visit>
__device__ __forceinline__ void each_score_reading(float (&scores)[M_TILES][N_TILES][4], Read read, Visit visit) {
    static_assert(N_TILES % STEP == 0, "all rounds are alike");
#pragma unroll 1
    for (int first_tile = 0; first_tile < N_TILES; first_tile += STEP) {
        Entries<STEP> entries;
        read(entries, 8 * first_tile);
        each_score_read<STEP>(scores, first_tile, entries, visit);
        if constexpr (STEP < N_TILES) {
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) rotate_columns<STEP>(scores[m]);
        }
    }
}
