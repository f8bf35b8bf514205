#include "memory/add_float.cuh"

// Adding up in global memory, one float at a time: before sm_90.

/// Adds a lane's eight numbers of a 16 x 16 tile to the tile's 256; lane after lane, so that a warp's access is one line.
__device__ __forceinline__ void add_fragment(float* tile, const float (&x)[2][4]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) add_float(tile + i * 32 + threadIdx.x % 32, x[i / 4][i % 4]);
}

/// Reads them back.
__device__ __forceinline__ void load_fragment(const float* tile, float (&x)[2][4]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i / 4][i % 4] = tile[i * 32 + threadIdx.x % 32];
}
