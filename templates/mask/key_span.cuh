#include "mask/key_bits.cuh"

/// Keys [begin, end) in a row; none where begin >= end.
struct KeySpan {
    int begin, end;

    __device__ __forceinline__ bool some() const { return begin < end; }

    /// The same, counted from a key.
    __device__ __forceinline__ KeySpan from(int key) const { return {begin - key, end - key}; }

    /// Those of the lane's 32 keys (key_bits.cuh) that are in it; `key` is the lane's first.
    __device__ __forceinline__ unsigned bits(int key) const { return bits_below(end - key) & ~bits_below(begin - key); }
};
