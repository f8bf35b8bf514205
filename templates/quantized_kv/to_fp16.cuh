/// Two numbers of 16 bits in a word, of which all of 8 bits are some.
struct Wide {
    static constexpr unsigned E4M3_BITS = 0x3f803f80, E4M3_SHIFT = 1;      // where exponent and mantissa go, from the upper byte
    static constexpr unsigned E4M3_FACTOR = 0x5c005c00;                    // 2^8: the exponent's bias is 15, that of e4m3 7
    static constexpr float LEAST_UNIT = 0x1p-14f, MOST_UNIT = 0x1p15f;     // of values, see ValueScale

    /// a b + c
    static __device__ __forceinline__ unsigned multiply_add(unsigned a, unsigned b, unsigned c) {
        unsigned sum;
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
        return sum;
    }

    /// Of int8 with the sign flipped, in the lower bytes: 1024 + x + 128, less 1152.
    static __device__ __forceinline__ unsigned from_int8(unsigned bytes) {
        return multiply_add(0x64006400 | (bytes ^ 0x00800080), 0x3c003c00, 0xe480e480);
    }

    static __device__ __forceinline__ unsigned power_of_two(float x) {
        return ((__float_as_uint(x) >> 23) - 112 << 10) * 0x10001;
    }
};
