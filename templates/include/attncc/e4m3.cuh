#include "attncc/element.cuh"
#include "attncc/math.cuh"

/// Q, K, V and P are e4m3 (8 bits, up to 448), the output bf16, whose type and words these are. A row's largest probability
/// lies between 2^6 and 2^8.75: where 16-bit operands have 1, so that small ones don't become 0 below 2^-10.
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
};
