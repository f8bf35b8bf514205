#include "attncc/barrier.cuh"
#include "attncc/tma.cuh"

// What the threads that multiply do to tiles in shared memory before wgmma reads them. Each warpgroup has a named barrier,
// and all of them together one more.

__device__ __forceinline__ void warpgroup_wait(int warpgroup) { named_wait(1 + warpgroup, 128); }

/// Moves the sign of `scale` into the warpgroup's Q tile, and zero too, so that scores need a positive factor: the one
/// returned.
template <class Dtype, class QTile>
__device__ __forceinline__ float take_sign(unsigned queries, float scale, int warpgroup) {
    if (!(scale <= 0)) return scale;
#pragma unroll 1
    for (int byte = threadIdx.x % 128 * 4; byte < QTile::BYTES; byte += 128 * 4) {
        unsigned word;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(queries + byte));
        word = scale == 0 ? 0 : word ^ Dtype::SIGN_BITS;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(queries + byte), "r"(word) : "memory");
    }
    fence_async();
    warpgroup_wait(warpgroup);
    return scale == 0 ? 1 : -scale;
}

/// Zeros in place of the rows of a V tile from `rows` on: they belong to another sequence, and 0 times what they hold could
/// be NaN. All THREADS that multiply share the work.
template <class VTile, int THREADS>
__device__ __forceinline__ void clear_rows(unsigned values, int rows) {
#pragma unroll 1
    for (int panel = 0; panel < VTile::ROW_BYTES / 128; ++panel)
#pragma unroll 1
        for (int byte = (rows * 8 + threadIdx.x) * 16; byte < VTile::ROWS * 128; byte += THREADS * 16)
            asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(values + panel * VTile::ROWS * 128 + byte), "r"(0)
                         : "memory");
    fence_async();
    named_wait(1 + THREADS / 128, THREADS);
}
