// exact_sum: rounds the sums of gradients of learnable inputs
// Written by attncc 0.2.0. Do not edit.
//
// Contents, by line:
//    11  leaf code: learned.cuh 11
//    25  parameters
//    32  the kernel

#define DEVICE __device__ __forceinline__

// ---- learned.cuh
// Gradients of learnable inputs, added up from pairs. How far a sum goes before it is added to memory depends on what its
// place depends on. All have one interface: `pair` for each pair, in hand the fragment's row `key` of the warp, `column`
// after each column (fragment n, its left or right `side`), and at the end of a tile `row` for each of the two rows that are
// this lane's own (`own_query`), `tile`, and `head`. All but `column` take what adds a float to memory.

/// Words of an exact sum (below).
constexpr int EXACT_WORDS = 17;

/// 2^exponent, for exponents of normal doubles.
DEVICE double power_of_two(int exponent) { return __longlong_as_double((long long)(1023 + exponent) << 52); }

DEVICE float not_a_number() { return __int_as_float(0x7fffffff); }

struct Params {
    const long long *sums;
    float *out;
    long long count;
};

/// Rounds exact sums (learned.cuh) to floats, from the largest word down: the same bits whatever the order of additions was.
extern "C" __global__ void __launch_bounds__(128) exact_sum(const __grid_constant__ Params params) {
    const long long first = (long long)blockIdx.x * 128 + threadIdx.x;
    for (long long i = first; i < params.count; i += (long long)gridDim.x * 128) {
        const long long* words = params.sums + i * EXACT_WORDS;
        double sum = 0;
        for (int word = EXACT_WORDS - 2; word >= 0; --word) sum += (double)words[word] * power_of_two(16 * word - 149);
        params.out[i] = words[EXACT_WORDS - 1] != 0 ? not_a_number() : (float)sum;
    }
}
