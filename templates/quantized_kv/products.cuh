#include "mma/mma_16bit.cuh"
#include "quantized_kv/fp16_products.cuh"

// The two products of attention over K and V of 8 bits, which each warp widens in registers, fragment by fragment. A word that
// ldmatrix brings holds four numbers. Of K these are neighbouring columns of a key: two fragments' worth, once Q's columns stand
// as take_queries puts them. Of V, transposed, they are columns 2j and 2j + 1 of two keys: one for a column tile of the even
// columns, one for one of the odd (`ColumnsInFours`).

/// scores = Q K^T, of the rows of `queries` (QueryFragments), which `addresses` tells where to read.
template <class QTile, class KTile, int M_TILES, int N_TILES, class Queries, class FragmentAddresses, class Overlapped>
__device__ __forceinline__ void multiply_queries_cache(float (&scores)[M_TILES][N_TILES][4], const Queries& queries, const FragmentAddresses& addresses,
                                                       unsigned keys, Overlapped overlapped) {
    constexpr int STEPS = Queries::STEPS;
    constexpr int AT_ONCE = M_TILES == 1 ? 2 : 1;  // steps that a loaded word serves: two take more registers for Q
    const auto k_lane = addresses.template key<KTile>(keys);
#pragma unroll
    for (int i = 0; i < M_TILES * N_TILES * 4; ++i) scores[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] = 0;
#pragma unroll
    for (int first = 0; first < STEPS; first += AT_ONCE) {
        unsigned q[AT_ONCE][M_TILES][4];
#pragma unroll
        for (int step = first; step < min(first + AT_ONCE, STEPS); ++step) {
            if (step < Queries::KEPT)
                memcpy(q[step - first], queries.kept[step], sizeof(q[0]));
            else
                load_queries<QTile>(q[step - first], addresses.template query<QTile>(queries.queries, queries.first_row), step);
        }
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            unsigned k[4];
            load_matrices(k, KTile::at(k_lane, 8 * n, first / 2 * 2));
#pragma unroll
            for (int i = 0; i < 2 * AT_ONCE; ++i) {
                const int half = i % 2, step = first + i / 2;
                if (step >= STEPS) continue;
                const unsigned word = k[2 * half + step % 2], low = Widen::neighbours(word, 0), high = Widen::neighbours(word, 1);
#pragma unroll
                for (int m = 0; m < M_TILES; ++m) multiply_fp16(scores[m][n + half], q[i / 2][m], low, high);
            }
        }
        if (first == 0) overlapped(0);
        if (first == (STEPS > AT_ONCE ? AT_ONCE : 0)) overlapped(1);
    }
}

/// out += P V. `to_probs(m, n, x)` turns the four scores of tile (m, n) into what multiplies V; `range` brings that into fp16's range.
template <class VTile, int M_TILES, int N_TILES, int D_TILES, class ToProbs, class Dropout, class Range>
__device__ __forceinline__ void multiply_probs_cache(float (&out)[M_TILES][D_TILES][4], float (&scores)[M_TILES][N_TILES][4],
                                                     unsigned values, ToProbs to_probs, Dropout& dropout, Range& range, int lane) {
    const auto v_lane = VTile::lane(values, lane % 16, lane / 16);
#pragma unroll
    for (int i = 0; i < M_TILES * N_TILES; ++i) to_probs(i / N_TILES, i % N_TILES, scores[i / N_TILES][i % N_TILES]);
    range.take(scores, out);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) {
        unsigned probs[M_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float(&x)[4] = scores[m][n + i / 2];
                probs[m][i] = pack_fp16(x[i % 2 * 2], x[i % 2 * 2 + 1]);
            }
            dropout.drop(probs[m], m, n);
        }
#pragma unroll
        for (int d = 0; d < D_TILES; d += 4) {
            unsigned v[4];
            load_matrices_transposed(v, VTile::at(v_lane, 8 * n, d / 2));
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int chunk = i / 2, odd = i % 2;
                if (d + 2 * chunk >= D_TILES) continue;
                const unsigned first = Widen::alternate(v[2 * chunk], odd), second = Widen::alternate(v[2 * chunk + 1], odd);
#pragma unroll
                for (int m = 0; m < M_TILES; ++m) multiply_fp16(out[m][d + i], probs[m], first, second);
            }
        }
    }
}
