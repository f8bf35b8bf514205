#include "portable_backward/kept_in_smem.cuh"
#include "memory/shared_floats.cuh"

// What a backward kernel does for a variant that reads much of inputs for each pair: a tile's columns (queries) one after the
// other, in a loop, so that what one asks for has the registers of all. enough_registers.cuh has the same interface.

/// Lse and delta of two rows, from where they lie in shared memory on: one is loaded when it is asked for.
struct TwoRows {
    unsigned place;

    __device__ __forceinline__ explicit TwoRows(unsigned place) : place(place) {}
    __device__ __forceinline__ RowStatistics operator[](int i) const { return load_row(place + i * sizeof(RowStatistics)); }
};

/// The first, as registers can't be counted off.
__device__ __forceinline__ int place(int) { return 0; }

/// The lane's first column goes behind its others.
template <int M_TILES, int N_TILES>
__device__ __forceinline__ void move_columns(float (&tile)[M_TILES][N_TILES][4]) {
#pragma unroll
    for (int row = 0; row < 2 * M_TILES; ++row) {
        const int r = row % 2 * 2;
        const float first = tile[row / 2][0][r];
#pragma unroll
        for (int i = 1; i < 2 * N_TILES; ++i) tile[row / 2][(i - 1) / 2][r + (i - 1) % 2] = tile[row / 2][i / 2][r + i % 2];
        tile[row / 2][N_TILES - 1][r + 1] = first;
    }
}
