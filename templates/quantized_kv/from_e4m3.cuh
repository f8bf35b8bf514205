/// Numbers of e4m3, four a word, as numbers of 16 bits, exactly.
struct Widen {
    /// Those of bytes 0 and 1, or of 2 and 3. A NaN becomes 480.
    static __device__ __forceinline__ unsigned pair(unsigned word, int number) {
        const unsigned upper = __byte_perm(word, 0, number == 0 ? 0x1404 : 0x3424);  // in the upper bytes of both halves
        const unsigned bits = (upper >> Wide::E4M3_SHIFT & Wide::E4M3_BITS) | (upper & 0x80008000);
        return Wide::multiply_add(bits, Wide::E4M3_FACTOR, 0x80008000);
    }

    /// The highest bit of each byte that is a NaN.
    static __device__ __forceinline__ unsigned undefined(unsigned word) {
        return (word & 0x7f7f7f7f) + 0x01010101 & 0x80808080;
    }

    /// Makes what is undefined of a pair a NaN.
    static __device__ __forceinline__ unsigned with_undefined(unsigned pair, unsigned undefined, int number) {
        return pair | (__byte_perm(undefined, 0, number == 0 ? 0x4140 : 0x4342) >> 7) * 0x7fff;
    }
};
