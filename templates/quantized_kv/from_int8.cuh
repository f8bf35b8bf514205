#include "quantized_kv/fp16_products.cuh"

/// Numbers of int8, four a word, as numbers of fp16, exactly.
struct Int8ToFp16 {
    /// Those of bytes 0 and 1 (number 0), or of 2 and 3.
    static __device__ __forceinline__ unsigned neighbours(unsigned word, int number) {
        return pair(word, number == 0 ? 0x4140 : 0x4342);
    }

    /// Those of bytes 0 and 2 (number 0), or of 1 and 3.
    static __device__ __forceinline__ unsigned alternate(unsigned word, int number) {
        return pair(word, number == 0 ? 0x4240 : 0x4341);
    }

private:
    /// With the sign flipped, a byte is x + 128. Below 0x64 it makes 1024 + x + 128 in fp16.
    static __device__ __forceinline__ unsigned pair(unsigned word, unsigned bytes) {
        return multiply_add_fp16(__byte_perm(word ^ 0x80808080, 0x64646464, bytes), 0x3c003c00, 0xe480e480);
    }
};
