#include "mma/mma_16bit.cuh"

/// What rounding takes from scores, in units of theirs: nothing to speak of beside that of their operands.
template <int M_TILES, int N_TILES>
struct ScoreLowBits {
    static __device__ __forceinline__ float of(int, int, int) { return 0; }

    template <class Change>
    static __device__ __forceinline__ void change(Change) {}
    static __device__ __forceinline__ void add_to(const float (&)[M_TILES][N_TILES][4]) {}
};

/// The same, and what rounding took from each score.
template <class Dtype, class QTile, class KTile, int M_TILES, int N_TILES>
__device__ __forceinline__ void multiply_queries_keys(float (&scores)[M_TILES][N_TILES][4], ScoreLowBits<M_TILES, N_TILES>&,
                                                      unsigned queries, int first_row, unsigned keys) {
    multiply_queries_keys<Dtype, QTile, KTile>(scores, queries, first_row, keys);
}

/// What a block works on, for what comes after its loop: the loop leaves registers to keep it in.
template <class Work, class Params>
__device__ __forceinline__ const Work& found_again(const Work& work, const Params&) {
    return work;
}
