#include "memory/landed_for_wgmma.cuh"
#include "memory/layout.cuh"
#include "mma/wgmma.cuh"

// The two products of attention by wgmma: a warpgroup has 64 rows, of which each warp has 16, and meets all rows of a tile of K or V
// with one instruction for 16 columns of Q, or of P. The interface is that of mma_16bit.cuh; each product is over before it returns:
// other thread blocks use the tensor cores meanwhile.

/// The rows of Q, all read from shared memory.
template <class QTile, int M_TILES, int REGISTERS>
struct QueryFragments {
    unsigned long long tile;  // matrix descriptor

    __device__ __forceinline__ QueryFragments(unsigned queries, int) : tile(descriptor(queries, QTile::ROWS * 128)) {}

    /// scores = Q K^T. `overlapped` runs under the product.
    template <class Dtype, class KTile, int N_TILES, class Addresses, class Overlapped>
    __device__ __forceinline__ void multiply(float (&scores)[1][N_TILES][4], const Addresses&, unsigned keys, Overlapped overlapped) const {
        forget(scores);
        wgmma_fence();
        multiply_queries_keys_async<ColumnSteps<QTile::ROWS>, ColumnSteps<KTile::ROWS>>(scores[0], tile, descriptor(keys, KTile::ROWS * 128), 0);
        wgmma_commit();
        overlapped(0);
        overlapped(1);
        wgmma_wait<0>(scores);
    }
};

/// out += P V.
template <class Dtype, class VTile, int N_TILES, int D_TILES, class ToProbs, class Dropout>
__device__ __forceinline__ void multiply_probs_values(float (&out)[1][D_TILES][4], float (&scores)[1][N_TILES][4], unsigned values,
                                                      ToProbs to_probs, Dropout& dropout, int) {
    unsigned probs[N_TILES / 2][4];
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float(&x)[4] = scores[0][n + half];
            to_probs(0, x);
            probs[n / 2][2 * half] = Dtype::pack(x[0], x[1]);
            probs[n / 2][2 * half + 1] = Dtype::pack(x[2], x[3]);
        }
        dropout.drop(probs[n / 2], 0, n);
    }
    wgmma_fence();
    multiply_probs_values_async<RowSteps>(out[0], probs, descriptor(values, VTile::ROWS * 128), 1);
    wgmma_commit();
    wgmma_wait<0>(out);
}
