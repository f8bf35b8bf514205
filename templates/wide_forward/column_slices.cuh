#include "memory/output.cuh"
#include "memory/words.cuh"
#include "mma/mma_16bit.cuh"

// O += P V where each warp has columns of O, of all rows of the tile of Q: a slice of SLICE fragments of 8 columns. P comes from
// shared memory, where other warps have put it.

/// P of 16 rows, from `first_row` on, and of the keys that the warp has: to their place in the tile of P. `first_chunk`: of 8 keys, a
/// multiple of N_TILES. `to_probs` and `dropout` as multiply_probs_values has them.
template <class Dtype, class PTile, int N_TILES, class ToProbs, class Dropout>
__device__ __forceinline__ void put_probs(unsigned probs, int first_row, int first_chunk, float (&scores)[1][N_TILES][4], ToProbs to_probs,
                                          Dropout& dropout) {
    static_assert((N_TILES & N_TILES - 1) == 0, "numbers of chunks are put together by XOR");
    const int lane = threadIdx.x % 32;
    const auto target = PTile::lane(probs + lane % 4 * 4, first_row + lane / 4, first_chunk);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) {
        unsigned words[4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float(&x)[4] = scores[0][n + half];
            to_probs(0, x);
            words[2 * half] = Dtype::pack(x[0], x[1]);
            words[2 * half + 1] = Dtype::pack(x[2], x[3]);
        }
        dropout.drop(words, 0, n);
#pragma unroll
        for (int i = 0; i < 4; ++i) store_word(PTile::at(target, i % 2 * 8, n + i / 2), words[i]);
    }
}

/// Where a lane reads V, transposed: 16 rows at a time, of the pairs of fragments from `first` on. Slices of whole panels take one
/// address, others one for each pair.
template <class VTile, int SLICE, int PAIRS>
struct SliceLane {
    static constexpr bool PANELS = SLICE % 8 == 0;

    unsigned pairs[PANELS ? 1 : SLICE / 2];

    __device__ __forceinline__ SliceLane(unsigned values, int first) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int d = 0; d < (PANELS ? 1 : SLICE / 2); ++d)
            pairs[d] = VTile::place(values, lane % 16, 2 * min(first + d, PAIRS - 1) + lane / 16).address;
    }

    __device__ __forceinline__ unsigned at(int step, int d) const {
        if constexpr (PANELS) return (pairs[0] ^ d % 4 * 32) + VTile::panel(d / 4 * 8) + step * 16 * 128;
        return pairs[PANELS ? 0 : d] + step * 16 * 128;
    }
};

/// out += P V: the columns of a warp's slice, which begins at pair `first` of fragments. V has COLUMNS columns, a multiple of 16, in
/// panels of 128 bytes.
template <class Dtype, class PTile, class VTile, int COLUMNS, int WARPS, int ROW_TILES, int SLICE>
__device__ __forceinline__ void multiply_slice(float (&out)[ROW_TILES][SLICE][4], unsigned probs, unsigned values, int first) {
    static_assert(VTile::WIDE_END == VTile::CHUNKS, "rows of a panel are 128 bytes apart");
    constexpr int PAIRS = COLUMNS / 16;
    constexpr bool WHOLE = WARPS * SLICE / 2 == PAIRS;  // all slices are
    const int lane = threadIdx.x % 32;
    const auto p_lane = PTile::lane(probs, lane % 16, lane / 16);
    const SliceLane<VTile, SLICE, PAIRS> v_lane(values, first);
#pragma unroll
    for (int step = 0; step < PTile::CHUNKS / 2; ++step) {
        unsigned p[ROW_TILES][4];
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m) load_matrices(p[m], PTile::at(p_lane, 16 * m, 2 * step));
#pragma unroll
        for (int d = 0; d < SLICE / 2; ++d) {
            if (!WHOLE && first + d >= PAIRS) continue;
            unsigned v[4];
            load_matrices_transposed(v, v_lane.at(step, d));
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m) {
                Dtype::mma(out[m][2 * d], p[m], v[0], v[1]);
                Dtype::mma(out[m][2 * d + 1], p[m], v[2], v[3]);
            }
        }
    }
}

/// O of all rows, each times its factor.
template <int ROW_TILES, int SLICE>
__device__ __forceinline__ void rescale_slice(float (&out)[ROW_TILES][SLICE][4], const float (&factor)[ROW_TILES][2]) {
#pragma unroll
    for (int i = 0; i < 4 * ROW_TILES * SLICE; ++i) out[i / 4 / SLICE][i / 4 % SLICE][i % 4] *= factor[i / 4 / SLICE][i % 4 / 2];
}

/// Stores a slice, as store_rows does: where `places` says, from pair `first` of fragments on; of COLUMNS columns in all.
template <class Stored, int COLUMNS, int ROW_TILES, int SLICE, class Places>
__device__ __forceinline__ void store_slice(const Places& places, int first, const float (&out)[ROW_TILES][SLICE][4],
                                            const float (&factor)[ROW_TILES][2]) {
    const int lane = threadIdx.x % 32, column = 16 * first + ColumnsInPairs::first<Stored>(lane);
#pragma unroll
    for (int row_pair = 0; row_pair < 2 * ROW_TILES; ++row_pair) {
        const int m = row_pair / 2, r = row_pair % 2, row = 8 * row_pair + lane / 4;
        const bool exists = places.holds(row);
        auto* address = places.target + (exists ? places.offset(row) : 0) + column;
#pragma unroll
        for (int d = 0; d < SLICE; d += 2) {
            float x[2][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i / 2][i % 2] = out[m][d + i / 2][2 * r + i % 2] * factor[m][r];
            ColumnsInPairs::store<Stored>(address + 8 * d, x, exists ? COLUMNS - 8 * d - column : 0, lane);
        }
    }
}
