// Ints as the language has them: 64-bit and wrapping, floor division, shifts by any count.

__device__ __forceinline__ long long wrapping_add(long long a, long long b) {
    return (long long)((unsigned long long)a + (unsigned long long)b);
}

__device__ __forceinline__ long long wrapping_sub(long long a, long long b) {
    return (long long)((unsigned long long)a - (unsigned long long)b);
}

__device__ __forceinline__ long long wrapping_mul(long long a, long long b) {
    return (long long)((unsigned long long)a * (unsigned long long)b);
}

__device__ __forceinline__ long long wrapping_neg(long long a) { return wrapping_sub(0, a); }

__device__ __forceinline__ long long wrapping_abs(long long a) { return a < 0 ? wrapping_neg(a) : a; }

// The quotient rounded down; 0 where the divisor is 0. The divisor -1 stands apart: -2^63 / -1 traps or wraps.
template <class Int>
__device__ __forceinline__ Int floor_divide(Int a, Int b) {
    const Int divisor = (b == 0) | (b == -1) ? 1 : b;
    const Int quotient = a / divisor;
    const Int rest = a - quotient * divisor;
    const Int floored = quotient - ((rest != 0) & ((rest ^ divisor) < 0));
    return b == 0 ? 0 : b == -1 ? (Int)wrapping_neg(a) : floored;
}

// a - b * floor_divide(a, b), which has the sign of b; 0 where b is 0.
template <class Int>
__device__ __forceinline__ Int floor_remainder(Int a, Int b) {
    const Int divisor = (b == 0) | (b == -1) ? 1 : b;
    const Int rest = a % divisor;
    return rest + ((rest != 0) & ((rest ^ divisor) < 0) ? divisor : 0);
}

__device__ __forceinline__ long long shift_left(long long a, long long count) {
    return (unsigned long long)count < 64 ? (long long)((unsigned long long)a << count) : 0;
}

__device__ __forceinline__ long long shift_right(long long a, long long count) {
    return a >> ((unsigned long long)count < 64 ? count : 63);
}
