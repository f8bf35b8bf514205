#include "portable_backward/kept_in_registers.cuh"
#include "memory/shared_floats.cuh"

// What a backward kernel does where each thread has registers for all that the variant asks for: a tile's columns (queries) at
// once, so that loads for one run beside the arithmetic of others. few_registers.cuh has the same interface.

/// Lse and delta of two rows, from where they lie in shared memory on.
struct TwoRows {
    RowStatistics rows[2];

    __device__ __forceinline__ explicit TwoRows(unsigned place) { load_rows(rows, place); }
    __device__ __forceinline__ const RowStatistics& operator[](int i) const { return rows[i]; }
};

/// Where fragment or side i stands when its turn has come.
__device__ __forceinline__ int place(int i) { return i; }

/// After each side.
template <class Tile>
__device__ __forceinline__ void move_columns(Tile&) {}
