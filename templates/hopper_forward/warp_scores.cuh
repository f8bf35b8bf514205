#include "memory/layout.cuh"
#include "mma/load_matrices.cuh"

/// scores = Q K^T by one warp alone, which has lost its own, while others go on: wgmma would need all four of the
/// group. For 16 rows of Q from `first_row` on, and all keys; both tiles have panels of 128 bytes only. Lanes hold what
/// wgmma and mma.m16n8k16 give them: row lane/4 + 8*(i/2) and column 2*(lane%4) + i%2 of each 16 x 8 scores.
template <class Dtype, class QTile, class KTile, int N_TILES>
__device__ __forceinline__ void multiply_by_warp(float (&scores)[1][N_TILES][4], unsigned queries, int first_row, unsigned keys) {
    const int lane = threadIdx.x % 32;
    const unsigned k_lane = keys + KTile::template in_panel<128>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int i = 0; i < 4 * N_TILES; ++i) scores[0][i / 4][i % 4] = 0;
#pragma unroll 1
    for (int step = 0; step < KTile::CHUNKS / 2 * Dtype::PARTS; ++step) {
        const int row = first_row + lane % 16, chunk = (row * 16 ^ lane) & 7 * 16;  // of its line: 0 or 1, XOR the row's number
        const unsigned q_lane = queries + row * 128 + chunk;
        const int first = 2 * (step / Dtype::PARTS);  // chunk of the tile's rows
        unsigned q[4], k[4];
        load_matrices(q, (q_lane ^ first % 8 * 16) + QTile::panel(first / 8 * 8));
        Dtype::take_part(q, step % Dtype::PARTS);
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            load_matrices(k, (k_lane ^ first % 8 * 16) + KTile::panel(first / 8 * 8) + 8 * n * 128);
            Dtype::take_part(k, step % Dtype::PARTS);
#pragma unroll
            for (int i = 0; i < 2; ++i) Dtype::mma(scores[0][n + i], q, k[2 * i], k[2 * i + 1]);
        }
    }
}
