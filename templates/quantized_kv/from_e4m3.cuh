/// Numbers of e4m3, four a word, as numbers of fp16, exactly: an instruction of sm_89 and later.
struct E4m3ToFp16 {
    /// Those of bytes 0 and 1 (number 0), or of 2 and 3.
    static __device__ __forceinline__ unsigned neighbours(unsigned word, int number) {
        return number == 0 ? widened((unsigned short)word) : widened_upper(word);
    }

    /// Those of bytes 0 and 2 (number 0), or of 1 and 3.
    static __device__ __forceinline__ unsigned alternate(unsigned word, int number) {
        return neighbours(__byte_perm(word, 0, 0x3120), number);
    }

private:
    static __device__ __forceinline__ unsigned widened(unsigned short bytes) {
        unsigned pair;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(bytes));
        return pair;
    }

    /// The instruction takes the upper half of a register, where it isn't shifted before.
    static __device__ __forceinline__ unsigned widened_upper(unsigned word) {
        unsigned pair;
        asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, high;\n}" : "=r"(pair) : "r"(word));
        return pair;
    }
};
