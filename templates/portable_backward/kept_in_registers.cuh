#include "common/math.cuh"

// What a backward kernel keeps for its loop, in registers. kept_in_smem.cuh has the same interface.

constexpr bool KNOWS_FULL = true;  // tiles of which all is kept have code of their own

/// What a head is about.
template <class T>
__device__ __forceinline__ T kept(const T& x) {
    return uniform_struct(x);
}

/// What is asked for between tiles, and the same in all threads.
template <bool, class T>
__device__ __forceinline__ T aside(const T& x) {
    return x;
}
