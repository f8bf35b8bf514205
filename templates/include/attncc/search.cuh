#include "attncc/load.cuh"

// Inputs whose entries never decrease. All lanes of the warp must call these, with the same arguments.

/// The first of `length` places that isn't `before` something, if such places follow those that are: 33 pieces at a time.
template <class Before>
__device__ __forceinline__ int first_not(int length, Before before) {
    const int lane = threadIdx.x % 32;
    int first = 0;
    while (length > 0) {
        const int piece = length / 33 + 1, last = (lane + 1) * piece - 1;  // of the lane's piece
        const int passed = __popc(__ballot_sync(~0u, last < length && before(first + last)));
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
