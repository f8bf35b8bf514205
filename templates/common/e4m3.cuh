#include "common/element.cuh"
#include "common/math.cuh"

/// Q, K, V and P are e4m3 (8 bits, up to 448), the output bf16, whose type and words these are. A row's largest probability
/// begins at 2^6, where 16-bit operands have 1, so that small ones don't become 0 below 2^-10, and grows to 2^8.75 at most. Where
/// many are as large, it is lowered (stale_max_softmax.cuh).
struct Dtype : PowersOfTwo {
    using Element = bf16;
    static constexpr float FIRST = 6, GROWTH = 8.75f;
    static constexpr unsigned SIGN_BITS = 0x80808080;
    static constexpr int WORDS = 1;  // of 32 bits, for two neighbouring columns

    static __device__ __forceinline__ unsigned pack(float low, float high) {
        unsigned word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }

    static __device__ __forceinline__ void words(unsigned (&word)[1], float x, float y) { word[0] = pack(x, y); }

    /// Two operands.
    static __device__ __forceinline__ unsigned short pack_two(float low, float high) {
        unsigned short pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
        return pair;
    }

    /// Of words that hold four operands each, two by two: mma takes them as fp16, in two steps.
    static constexpr int PARTS = 2;
    static __device__ __forceinline__ void take_part(unsigned (&words)[4], int part) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(words[i]) : "h"((unsigned short)(words[i] >> 16 * part)));
    }

    /// sum += a b
    static __device__ __forceinline__ void mma(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
