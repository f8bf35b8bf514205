#include "memory/landed.cuh"
#include "mma/lanes.cuh"
#include "memory/layout.cuh"
#include "mma/load_matrices.cuh"

// The two products of attention on tensor cores: mma.m16n8k16, fp32 accumulators.
//
// Accumulators are x[m][n][i]: of the tile of 16 rows m and 8 columns n, a lane holds row lane/4 + 8*(i/2) and column
// 2*(lane%4) + i%2 for i in 0..3. Two neighbouring tiles of P are, packed pairwise, an A operand as they stand.

/// scores = Q K^T for all rows of the K tile; `read_queries(step, q)` gives the fragments of 16 columns of Q. Each K fragment
/// serves all M_TILES; `k_lane` is where the lane reads K. `overlapped(0)`, then `overlapped(1)`: what may run under the products,
/// once a tile. UNROLLED: of the steps, all but where it is seldom done: they compile for long.
template <class Dtype, class KTile, int UNROLLED = KTile::CHUNKS / 2, int M_TILES, int N_TILES, class ReadQueries, class Overlapped>
__device__ __forceinline__ void multiply_fragments_keys(float (&scores)[M_TILES][N_TILES][4], ReadQueries read_queries,
                                                        const typename KTile::Lane& k_lane, Overlapped overlapped) {
    constexpr int STEPS = KTile::CHUNKS / 2 * Dtype::PARTS;
#pragma unroll
    for (int i = 0; i < M_TILES * N_TILES * 4; ++i) scores[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] = 0;
#pragma unroll UNROLLED
    for (int step = 0; step < STEPS; ++step) {
        unsigned q[M_TILES][4];
        read_queries(step / Dtype::PARTS, q);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) Dtype::take_part(q[m], step % Dtype::PARTS);
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            unsigned k[4];
            load_matrices(k, KTile::at(k_lane, 8 * n, 2 * (step / Dtype::PARTS)));
            Dtype::take_part(k, step % Dtype::PARTS);
#pragma unroll
            for (int m = 0; m < M_TILES; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) Dtype::mma(scores[m][n + half], q[m], k[2 * half], k[2 * half + 1]);
        }
        if (step == 0) overlapped(0);
        if (step == min(1, STEPS - 1)) overlapped(1);
    }
}

/// M_TILES * 16 rows of Q, of 16 columns.
template <class QTile, int M_TILES>
__device__ __forceinline__ void load_queries(unsigned (&q)[M_TILES][4], const typename QTile::Lane& q_lane, int step) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) load_matrices(q[m], QTile::at(q_lane, 16 * m, 2 * step));
}

/// scores = Q K^T: the warp's M_TILES * 16 rows of Q from `first_row` on, times all rows of the K tile. Of more than 192 columns,
/// 64 in each round of a loop.
template <class Dtype, class QTile, class KTile, int UNROLLED = QTile::CHUNKS <= 24 ? QTile::CHUNKS / 2 : 4, int M_TILES, int N_TILES>
__device__ __forceinline__ void multiply_queries_keys(float (&scores)[M_TILES][N_TILES][4], unsigned queries,
                                                      int first_row, unsigned keys) {
    auto read = [&](int step, unsigned(&q)[M_TILES][4]) {
        load_queries<QTile>(q, query_lane<QTile>(queries, first_row, threadIdx.x % 32), step);
    };
    multiply_fragments_keys<Dtype, KTile, UNROLLED>(scores, read, key_lane<KTile>(keys, threadIdx.x % 32), [](int) {});
}

/// A warp's rows of Q, which meet many tiles of keys: as many of their columns as REGISTERS hold are kept, the others are read
/// for each tile. `addresses` tells where a lane reads (addresses_recomputed.cuh, addresses_ahead.cuh).
template <class QTile, int M_TILES, int REGISTERS>
struct QueryFragments {
    static constexpr int STEPS = QTile::CHUNKS / 2;
    static constexpr int ROOM = REGISTERS > 0 ? REGISTERS / (4 * M_TILES) : 0, KEPT = ROOM < STEPS ? ROOM : STEPS;

    unsigned queries;
    int first_row;
    unsigned kept[KEPT + 1][M_TILES][4];  // one more: no array is empty

    /// Q must have come.
    __device__ __forceinline__ QueryFragments(unsigned queries, int first_row) : queries(queries), first_row(first_row) {
#pragma unroll
        for (int step = 0; step < KEPT; ++step) load_queries<QTile>(kept[step], query_lane<QTile>(queries, first_row, threadIdx.x % 32), step);
    }

    template <class Dtype, class KTile, int N_TILES, class FragmentAddresses, class Overlapped>
    __device__ __forceinline__ void multiply(float (&scores)[M_TILES][N_TILES][4], const FragmentAddresses& addresses, unsigned keys,
                                             Overlapped overlapped) const {
        auto read = [&](int step, unsigned(&q)[M_TILES][4]) {
            if (step < KEPT)
                memcpy(q, kept[step], sizeof(q));
            else
                load_queries<QTile>(q, addresses.template query<QTile>(queries, first_row), step);
        };
        multiply_fragments_keys<Dtype, KTile>(scores, read, addresses.template key<KTile>(keys), overlapped);
    }
};

/// out += P V. `to_probs(m, n, x)` turns the four scores of tile (m, n) into probabilities, just before they are packed,
/// so that their registers are free for the next; `dropout.drop(words, m, n)` then clears pairs of tiles n and n + 1.
template <class Dtype, class VTile, int M_TILES, int N_TILES, int D_TILES, class ToProbs, class Dropout>
__device__ __forceinline__ void multiply_probs_values(float (&out)[M_TILES][D_TILES][4],
                                                      float (&scores)[M_TILES][N_TILES][4], unsigned values,
                                                      ToProbs to_probs, Dropout& dropout, int lane = threadIdx.x % 32) {
    const auto v_lane = VTile::lane(values, lane % 16, lane / 16);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) {
        unsigned probs[M_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float(&x)[4] = scores[m][n + half];
                to_probs(m, x);
                probs[m][2 * half] = Dtype::pack(x[0], x[1]);
                probs[m][2 * half + 1] = Dtype::pack(x[2], x[3]);
            }
            dropout.drop(probs[m], m, n);
        }
#pragma unroll
        for (int d = 0; d < D_TILES; d += 2) {
            unsigned v[4];
            load_matrices_transposed(v, VTile::at(v_lane, 8 * n, d));
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) {
                Dtype::mma(out[m][d], probs[m], v[0], v[1]);
                Dtype::mma(out[m][d + 1], probs[m], v[2], v[3]);
            }
        }
    }
}
