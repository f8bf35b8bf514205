#include "memory/landed.cuh"
#include "memory/layout.cuh"
#include "memory/shared_floats.cuh"

// The two products of attention in fp32 arithmetic, on the accumulator layout of mma.m16n8k16 (see mma_16bit.cuh): all
// code between the products is the same. Tensor cores would round the operands to TF32.

/// Adds four columns of Q and K, one 16-byte chunk, to the scores: their own sum as a whole.
template <class QTile, class KTile, int M_TILES, int N_TILES>
__device__ __forceinline__ void multiply_chunk(float (&scores)[M_TILES][N_TILES][4], const typename QTile::Lane& q_lane,
                                               const typename KTile::Lane (&k_lane)[2], int chunk) {
    float4 q[M_TILES][2];
#pragma unroll
    for (int row = 0; row < 2 * M_TILES; ++row) q[row / 2][row % 2] = load_float4(QTile::at(q_lane, 8 * row, chunk));
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int column = 0; column < 2; ++column) {
            const float4 k = load_float4(KTile::at(k_lane[column], 8 * n, chunk));
#pragma unroll
            for (int row = 0; row < 2 * M_TILES; ++row) {
                const float4 x = q[row / 2][row % 2];
                float& score = scores[row / 2][n][row % 2 * 2 + column];
                score += fmaf(x.w, k.w, fmaf(x.z, k.z, fmaf(x.y, k.y, x.x * k.x)));
            }
        }
}

/// Hands sums over chunks [first, first + COUNT) of Q and K to `add(m, n, i, sum)`, once more their own sum as a whole: of many
/// roundings only those at the size of the whole sum matter, and these are few (pairwise summation, Higham 1993).
template <int COUNT, class QTile, class KTile, int M_TILES, int N_TILES, class Add>
__device__ __forceinline__ void multiply_chunks(const typename QTile::Lane& q_lane, const typename KTile::Lane (&k_lane)[2],
                                                int first, Add add) {
    float sum[M_TILES][N_TILES][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < COUNT; ++chunk) multiply_chunk<QTile, KTile>(sum, q_lane, k_lane, first + chunk);
#pragma unroll
    for (int i = 0; i < M_TILES * N_TILES * 4; ++i)
        add(i / 4 / N_TILES, i / 4 % N_TILES, i % 4, sum[i / 4 / N_TILES][i / 4 % N_TILES][i % 4]);
}

/// Addresses of all chunks of a panel go from panel to panel, each in a register. See low_bits_fp32.cuh for another way.
struct AddressesInRegisters {
    static __device__ __forceinline__ int chunk(int panel) { return panel; }

    template <class Tile>
    static __device__ __forceinline__ void step(typename Tile::Lane&) {}
};

/// All of Q K^T in such sums.
template <class Addresses, class QTile, class KTile, int M_TILES, int N_TILES, class Add>
__device__ __forceinline__ void multiply_panels(unsigned queries, int first_row, unsigned keys, Add add) {
    const int lane = threadIdx.x % 32, key = lane % 4 * 2;
    auto q_lane = QTile::lane(queries, first_row + lane / 4, 0);
    typename KTile::Lane k_lane[2] = {KTile::lane(keys, key, 0), KTile::lane(keys, key + 1, 0)};
#pragma unroll 1
    for (int panel = 0; panel < QTile::WIDE_END; panel += 8) {
        multiply_chunks<8, QTile, KTile, M_TILES, N_TILES>(q_lane, k_lane, Addresses::chunk(panel), add);
        Addresses::template step<QTile>(q_lane);
        for (auto& key_lane : k_lane) Addresses::template step<KTile>(key_lane);
    }
    multiply_chunks<QTile::CHUNKS - QTile::WIDE_END, QTile, KTile, M_TILES, N_TILES>(q_lane, k_lane, QTile::WIDE_END, add);
}

/// scores = Q K^T, as in mma_16bit.cuh.
template <class Dtype, class QTile, class KTile, int M_TILES, int N_TILES>
__device__ __forceinline__ void multiply_queries_keys(float (&scores)[M_TILES][N_TILES][4], unsigned queries,
                                                      int first_row, unsigned keys) {
#pragma unroll
    for (int i = 0; i < M_TILES * N_TILES * 4; ++i) scores[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] = 0;
    multiply_panels<AddressesInRegisters, QTile, KTile, M_TILES, N_TILES>(
        queries, first_row, keys, [&](int m, int n, int i, float sum) { scores[m][n][i] += sum; });
}

/// A warp's rows of Q, as in mma_16bit.cuh: read for each tile.
template <class QTile, int M_TILES, int REGISTERS>
struct QueryFragments {
    unsigned queries;
    int first_row;

    __device__ __forceinline__ QueryFragments(unsigned queries, int first_row) : queries(queries), first_row(first_row) {}

    template <class Dtype, class KTile, int N_TILES, class FragmentAddresses, class Overlapped>
    __device__ __forceinline__ void multiply(float (&scores)[M_TILES][N_TILES][4], const FragmentAddresses&, unsigned keys,
                                             Overlapped overlapped) const {
        overlapped(0);
        overlapped(1);
        multiply_queries_keys<Dtype, QTile, KTile>(scores, queries, first_row, keys);
    }
};

/// Adds the products of 8 keys, whose probabilities are tiles (m, 0), to GROUP tiles of output columns from `first` on.
template <class VTile, int GROUP, int D_TILES, int M_TILES, int N_TILES>
__device__ __forceinline__ void multiply_keys(float (&sum)[M_TILES][GROUP][4], const float (&probs)[M_TILES][N_TILES][4],
                                              const typename VTile::Lane& v_lane, int first) {
#pragma unroll
    for (int key = 0; key < 8; ++key) {
        float p[2 * M_TILES];
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row)
            p[row] = __shfl_sync(~0u, probs[row / 2][0][row % 2 * 2 + key % 2], key / 2, 4);
#pragma unroll
        for (int d = 0; d < GROUP && first + d < D_TILES; ++d) {
            const float2 v = load_float2(VTile::at(v_lane, key, 2 * (first + d)));
#pragma unroll
            for (int row = 0; row < 2 * M_TILES; ++row) {
                float(&x)[4] = sum[row / 2][d];
                x[row % 2 * 2] = fmaf(p[row], v.x, x[row % 2 * 2]);
                x[row % 2 * 2 + 1] = fmaf(p[row], v.y, x[row % 2 * 2 + 1]);
            }
        }
    }
}

/// Moves each tile of 8 columns to the place before it, and the first to the end.
template <int M_TILES, int N_TILES>
__device__ __forceinline__ void rotate(float (&x)[M_TILES][N_TILES][4]) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float first = x[m][0][i];
#pragma unroll
            for (int n = 1; n < N_TILES; ++n) x[m][n - 1][i] = x[m][n][i];
            x[m][N_TILES - 1][i] = first;
        }
}

/// out += P V, as in mma_16bit.cuh. A tile's own sum is added to `out` as a whole, which keeps rounding errors small over
/// many keys; GROUP tiles of output columns at a time share the shuffles that spread P over the quad. The loop over the
/// keys is rolled, for the compiler's sake: P turns under it.
template <class Dtype, class VTile, int M_TILES, int N_TILES, int D_TILES, class ToProbs, class Dropout>
__device__ __forceinline__ void multiply_probs_values(float (&out)[M_TILES][D_TILES][4],
                                                      float (&scores)[M_TILES][N_TILES][4], unsigned values,
                                                      ToProbs to_probs, Dropout& dropout, int lane = threadIdx.x % 32) {
    constexpr int GROUP = M_TILES * D_TILES <= 16 ? 8 : 4;
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            to_probs(m, scores[m][n]);
            dropout.drop(scores[m][n], m, n);
        }
#pragma unroll
    for (int first = 0; first < D_TILES; first += GROUP) {
        float sum[M_TILES][GROUP][4] = {};
        auto v_lane = VTile::lane(values + lane % 2 * 8, 0, lane % 4 / 2);
#pragma unroll 1
        for (int n = 0; n < N_TILES; ++n) {
            multiply_keys<VTile, GROUP, D_TILES>(sum, scores, v_lane, first);
            rotate(scores);
            v_lane = VTile::down(v_lane, 8);
        }
#pragma unroll
        for (int i = 0; i < M_TILES * GROUP * 4; ++i)
            if (first + i / 4 % GROUP < D_TILES)
                out[i / 4 / GROUP][first + i / 4 % GROUP][i % 4] += sum[i / 4 / GROUP][i / 4 % GROUP][i % 4];
    }
}
