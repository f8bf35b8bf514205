#include "mma/mma_fp32.cuh"
#include "common/two_sum.cuh"

/// What rounding takes from scores when sums are added to them.
template <int M_TILES, int N_TILES>
struct ScoreLowBits {
    float values[M_TILES][N_TILES][4];

    __device__ __forceinline__ float of(int m, int n, int i) const { return values[m][n][i]; }

    template <class Change>
    __device__ __forceinline__ void change(Change change) { change(values); }

    __device__ __forceinline__ void add_to(float (&scores)[M_TILES][N_TILES][4]) const {
#pragma unroll
        for (int i = 0; i < M_TILES * N_TILES * 4; ++i)
            scores[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] += of(i / 4 / N_TILES, i / 4 % N_TILES, i % 4);
    }
};

/// Addresses of chunks are made of the lane's in each panel, by an instruction that would else add to what is kept: 24 registers
/// less for Q and K. The lane's is hidden from the compiler, which knows better.
struct AddressesRecomputed {
    static __device__ __forceinline__ int chunk(int) { return 0; }

    template <class Tile>
    static __device__ __forceinline__ void step(typename Tile::Lane& lane) {
        lane.wide = opaque(lane.wide + Tile::panel(8));
    }
};

/// The same, and what rounding took from each score.
template <class Dtype, class QTile, class KTile, int M_TILES, int N_TILES>
__device__ __forceinline__ void multiply_queries_keys(float (&scores)[M_TILES][N_TILES][4], ScoreLowBits<M_TILES, N_TILES>& low_bits,
                                                      unsigned queries, int first_row, unsigned keys) {
#pragma unroll
    for (int i = 0; i < M_TILES * N_TILES * 4; ++i)
        scores[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] = low_bits.values[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] = 0;
    auto add = [&](int m, int n, int i, float sum) { add_exactly(scores[m][n][i], low_bits.values[m][n][i], sum); };
    multiply_panels<AddressesRecomputed, QTile, KTile, M_TILES, N_TILES>(queries, first_row, keys, add);
}

/// What a block works on, for what comes after its loop, where sums and what they lose leave no registers to keep it in.
template <class Work, class Params>
__device__ __forceinline__ Work found_again(const Work&, const Params& params) {
    return Work(params);
}
