#include "memory/copy.cuh"
#include "memory/words.cuh"

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
