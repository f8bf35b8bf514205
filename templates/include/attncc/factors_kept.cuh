#include "attncc/transposed.cuh"

/// What dS of the raw score is to that of the final one, with 16 bits until P is known.
template <class Operand>
struct Factors {
    Operand words;

    __device__ __forceinline__ void set(int n, int r, float x, float y) { word_of(words, n, r) = Dtype::pack(x, y); }

    /// A pair that weighs nothing has no gradient, whatever its factor.
    __device__ __forceinline__ void multiply(int n, int r, float& x, float& y) const {
        const unsigned word = words[n / 2][n % 2 * 2 + r];
        x = x == 0 ? 0 : x * Dtype::low(word);
        y = y == 0 ? 0 : y * Dtype::high(word);
    }
};
