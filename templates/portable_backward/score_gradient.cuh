#include "memory/layout.cuh"
#include "mma/mma_16bit.cuh"
#include "portable_forward/queries.cuh"

/// Stores the warp's rows of a tile, from `first_row` on, rounded.
template <class Dtype, class Tile, int M_TILES, int N_TILES>
__device__ __forceinline__ void store_scores(unsigned tile, int first_row, const float (&x)[M_TILES][N_TILES][4]) {
    const int lane = threadIdx.x % 32;
    const auto target = Tile::lane(tile + lane % 4 * 4, first_row + lane / 4, 0);
#pragma unroll
    for (int row = 0; row < 2 * M_TILES; ++row)
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) {
            const float(&four)[4] = x[row / 2][n];
            store_word(Tile::at(target, 8 * row, n), Dtype::pack(four[row % 2 * 2], four[row % 2 * 2 + 1]));
        }
}

/// The columns `GROUP, GROUP + GROUPS, ...` (in sixteens) of 16 rows of dQ = dS K. `scores` holds dS^T; `visit(column, sum)`
/// takes each 16 x 16 tile.
template <class Dtype, class ScoreTile, class KTile, int GROUP, int GROUPS, class Visit>
__device__ __forceinline__ void multiply_columns(unsigned scores, int row_block, unsigned keys, Visit visit) {
    constexpr int COLUMNS = (KTile::CHUNKS / 2 - GROUP + GROUPS - 1) / GROUPS;
    const int lane = threadIdx.x % 32;
    const typename ScoreTile::Place place = ScoreTile::place(scores, lane % 8 + lane / 16 * 8, 2 * row_block + lane / 8 % 2);
    const auto k_lane = KTile::lane(keys, lane % 16, lane / 16);
    float sum[COLUMNS][2][4] = {};
#pragma unroll
    for (int step = 0; step < KTile::ROWS / 16; ++step) {
        unsigned a[4];
        load_matrices_transposed(a, place.address + step * 16 * place.row_bytes);
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
            unsigned k[4];
            load_matrices_transposed(k, KTile::at(k_lane, 16 * step, 2 * (GROUP + i * GROUPS)));
            Dtype::mma(sum[i][0], a, k[0], k[1]);
            Dtype::mma(sum[i][1], a, k[2], k[3]);
        }
    }
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) visit(GROUP + i * GROUPS, sum[i]);
}

template <int N>
struct Number {
    static constexpr int VALUE = N;
};

/// visit(Number<0>()), ..., visit(Number<COUNT - 1>())
template <int COUNT, int FIRST = 0, class Visit>
__device__ __forceinline__ void each_number(Visit visit) {
    visit(Number<FIRST>());
    if constexpr (FIRST + 1 < COUNT) each_number<COUNT, FIRST + 1>(visit);
}

/// dQ = dS K of a tile, 16 x 16 at a time: `visit(row_block, column, sum)`, both counted in sixteens. `scores` holds dS^T,
/// which all warps have stored. Warps share row blocks and groups of at most MOST_COLUMNS columns.
template <class Dtype, int WARPS, class ScoreTile, class KTile, class Visit>
__device__ __forceinline__ void multiply_scores_keys(unsigned scores, unsigned keys, Visit visit) {
    constexpr int MOST_COLUMNS = 4, ROW_BLOCKS = ScoreTile::ROW_BYTES / 32, COLUMNS = KTile::CHUNKS / 2;
    constexpr int SHARE = WARPS / ROW_BLOCKS < COLUMNS ? WARPS / ROW_BLOCKS : COLUMNS;
    constexpr int NEEDED = (COLUMNS + MOST_COLUMNS - 1) / MOST_COLUMNS, GROUPS = SHARE > NEEDED ? SHARE : NEEDED;
#pragma unroll 1
    for (int task = uniform(threadIdx.x / 32); task < ROW_BLOCKS * GROUPS; task += WARPS) {
        const int row_block = task / GROUPS;
        each_number<GROUPS>([&](auto number) {
            constexpr int GROUP = decltype(number)::VALUE;
            if (task % GROUPS == GROUP)
                multiply_columns<Dtype, ScoreTile, KTile, GROUP, GROUPS>(
                    scores, row_block, keys, [&](int column, const float(&sum)[2][4]) { visit(row_block, column, sum); });
        });
    }
}
