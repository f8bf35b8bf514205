#include "attncc/copy.cuh"

__device__ __forceinline__ unsigned load_word(unsigned address) {
    unsigned word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address));
    return word;
}

__device__ __forceinline__ void store_word(unsigned address, unsigned word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

/// Moves the sign of `scale` into the Q tile, and zero too, so that scores need a positive factor: the one returned. The
/// tile may still be on its way; a barrier must follow before it is used.
template <class Dtype, class QTile, int THREADS>
__device__ __forceinline__ float take_sign(unsigned queries, float scale) {
    if (!(scale <= 0)) return scale;
    copy_wait<0>();
    __syncthreads();
#pragma unroll 1
    for (int byte = threadIdx.x * 4; byte < QTile::BYTES; byte += THREADS * 4) {
        const unsigned word = load_word(queries + byte);
        store_word(queries + byte, scale == 0 ? 0 : word ^ Dtype::SIGN_BITS);
    }
    return scale == 0 ? 1 : -scale;
}
