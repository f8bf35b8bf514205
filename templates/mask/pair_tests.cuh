#include "score/scores.cuh"

/// What of a mask is tested, where it is tested pair by pair, each by the lane that holds it. See shared_tests.cuh for the
/// other way.
template <class KvOrder, int M_TILES, int N_TILES>
struct Tests {
    template <class Row, class Test>
    __device__ __forceinline__ Tests(const Row (&)[M_TILES][2], int, Test) {}

    /// Nothing is known as bits.
    __device__ __forceinline__ unsigned bits(int, int, int) const { return ~0u; }
};
