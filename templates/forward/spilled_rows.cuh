#include "forward/spilled_lane_rows.cuh"

/// The lane, in a way that keeps nothing of the addresses of keys for those of values.
__device__ __forceinline__ int lane_of_values() { return opaque(threadIdx.x) % 32; }
__device__ __forceinline__ int lane_of_tests() { return (int)threadIdx.x % 32; }
