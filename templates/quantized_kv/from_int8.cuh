/// Numbers of int8, four a word, as numbers of 16 bits, exactly.
struct Widen {
    /// Those of bytes 0 and 1, or of 2 and 3.
    static __device__ __forceinline__ unsigned pair(unsigned word, int number) {
        return Wide::from_int8(__byte_perm(word, 0, number == 0 ? 0x4140 : 0x4342));
    }

    /// All are numbers.
    static constexpr __device__ __forceinline__ unsigned undefined(unsigned) { return 0; }
    static constexpr __device__ __forceinline__ unsigned with_undefined(unsigned pair, unsigned, int) { return pair; }
};
