/// Two numbers of 16 bits in a word, of which all of 8 bits are some.
struct Wide {
    static constexpr unsigned E4M3_BITS = 0x07f007f0, E4M3_SHIFT = 4;  // where exponent and mantissa go, from the upper byte
    static constexpr unsigned E4M3_FACTOR = 0x7b807b80;                // 2^120: the exponent's bias is 127, that of e4m3 7
    static constexpr float LEAST_UNIT = 1, MOST_UNIT = 1;              // of values, see ValueScale: P has room for any scale

    /// a b + c
    static __device__ __forceinline__ unsigned multiply_add(unsigned a, unsigned b, unsigned c) {
        unsigned sum;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
        return sum;
    }

    /// Of int8, in the lower bytes. There are 8 bits of mantissa for 9 that 128 + x + 128 has: 128 and the lower 7 bits, less 128
    /// or, where x is negative, 256.
    static __device__ __forceinline__ unsigned from_int8(unsigned bytes) {
        return multiply_add(0x43004300 | (bytes & 0x00800080), 0xbf80bf80, 0x43004300 | (bytes & 0x007f007f));
    }

    static __device__ __forceinline__ unsigned power_of_two(float x) { return (__float_as_uint(x) >> 16) * 0x10001; }
};
