#include "quantized_kv/fp16_products.cuh"

/// Numbers of e4m3, four a word, as numbers of fp16, exactly, for GPUs that have no instruction for it.
struct E4m3BitsToFp16 {
    /// Those of bytes 0 and 1 (number 0), or of 2 and 3.
    static __device__ __forceinline__ unsigned neighbours(unsigned word, int number) {
        // Sign, exponent and mantissa to their places; the sign is in two. The exponent's bias is 15, that of e4m3 7.
        const unsigned bits = __byte_perm(word, 0, number == 0 ? 0x9180 : 0xb3a2) << 7 & 0xbf80bf80;
        const unsigned undefined = (word & 0x7f7f7f7f) + 0x01010101;  // the highest bit of each byte: NaN
        return multiply_add_fp16(bits, 0x5c005c00, 0x80008000) | (__byte_perm(undefined, 0, number == 0 ? 0x9988 : 0xbbaa) & 0x7fff7fff);
    }

    /// Those of bytes 0 and 2 (number 0), or of 1 and 3.
    static __device__ __forceinline__ unsigned alternate(unsigned word, int number) {
        return neighbours(__byte_perm(word, 0, 0x3120), number);
    }
};
