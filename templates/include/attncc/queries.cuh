#include "attncc/copy.cuh"

/// Moves the sign of `scale` into the Q tile, and zero too, so that scores need a positive factor: the one returned. The
/// tile may still be on its way; a barrier must follow before it is used.
template <class Dtype, class QTile, int THREADS>
__device__ __forceinline__ float take_sign(unsigned queries, float scale) {
    if (!(scale <= 0)) return scale;
    copy_wait<0>();
    __syncthreads();
#pragma unroll 1
    for (int byte = threadIdx.x * 4; byte < QTile::BYTES; byte += THREADS * 4) {
        unsigned word;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(queries + byte));
        word = scale == 0 ? 0 : word ^ Dtype::SIGN_BITS;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(queries + byte), "r"(word) : "memory");
    }
    return scale == 0 ? 1 : -scale;
}
