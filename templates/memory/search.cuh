#include "memory/load.cuh"

// Inputs whose entries never decrease. All lanes of the warp must call these, with the same arguments.

/// The first of `length` places that isn't `before` something, if such places follow those that are: 129 pieces at a time,
/// so that two rounds do for 16,000 places, and three for two million. What it takes is the latency of the rounds.
template <class Before>
__device__ __forceinline__ int first_not(int length, Before before) {
    constexpr int LANE_PIECES = 4;
    const int lane = threadIdx.x % 32;
    int first = 0;
#pragma unroll 1
    while (length > 0) {
        const int piece = length / (32 * LANE_PIECES + 1) + 1;
        bool passes[LANE_PIECES];
#pragma unroll
        for (int i = 0; i < LANE_PIECES; ++i) {
            const int last = (LANE_PIECES * lane + i + 1) * piece - 1;
            passes[i] = last < length && before(first + last);
        }
        int passed = 0;
#pragma unroll
        for (int i = 0; i < LANE_PIECES; ++i) passed += __popc(__ballot_sync(~0u, passes[i]));
        first += passed * piece;
        length = min(piece - 1, length - passed * piece);
    }
    return first;
}

/// The first of `length` entries that is at least `value`; `length` if none is.
template <class Element, class Value>
__device__ __forceinline__ int first_at_least(const Element* line, long long stride, int length, Value value) {
    return first_not(length, [&](int place) { return load(line + place * stride) < value; });
}

/// The first of `length` entries that is greater than `value`; `length` if none is.
template <class Element, class Value>
__device__ __forceinline__ int first_above(const Element* line, long long stride, int length, Value value) {
    return first_not(length, [&](int place) { return load(line + place * stride) <= value; });
}
