#include "memory/spilled_to_smem.cuh"

// What a backward kernel keeps for its loop, where each thread has few registers left: in shared memory. kept_in_registers.cuh has the
// same interface.

constexpr bool KNOWS_FULL = false;

/// What a head is about: it may hold many addresses. All threads must call; they have read what it was before.
template <class T>
__device__ __forceinline__ const T& kept(const T& x) {
    __syncthreads();
    return spilled(x);
}

/// The same of what is asked for between tiles, if that is WANTED.
template <bool WANTED, class T>
__device__ __forceinline__ decltype(auto) aside(const T& x) {
    if constexpr (WANTED)
        return kept(x);
    else
        return T(x);
}
