#include "forward/spilled_lane_rows.cuh"

// As in spilled_rows.cuh, where a loop has found other addresses ahead (addresses_ahead.cuh): it has registers for no lane at all.
__device__ __forceinline__ int lane_of_values() { return (unsigned)opaque(threadIdx.x) % 32; }
__device__ __forceinline__ int lane_of_tests() { return lane_of_values(); }
