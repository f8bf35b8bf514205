#include "attncc/scores.cuh"

/// What of a mask is tested pair by pair, each by the lane that holds it. See shared_tests.cuh for the other way.
template <class KvOrder, int M_TILES, int N_TILES>
struct Tests {
    /// `test(row, key)` tells of a row and a key of the tile, counted from its first, below `keys`.
    template <class Row, class Test>
    __device__ __forceinline__ Tests(const Row (&)[M_TILES][2], int, Test) {}

    /// As `mask_scores` asks for them.
    __device__ __forceinline__ unsigned bits(int, int, int) const { return ~0u; }

    /// Masks what `bits` has left.
    template <class Row, class Test>
    __device__ __forceinline__ void mask_pairs(float (&scores)[M_TILES][N_TILES][4], const Row (&rows)[M_TILES][2], int keys,
                                               float masked, Test test) const {
        each_score<N_TILES>(scores, [&](int m, int r, int column, float x) {
            return test(rows[m][r], min(KvOrder::offset(column), keys - 1)) ? x : masked;
        });
    }
};
