#include "attncc/rotation.cuh"

/// What dS of the raw score is to that of the final one, with 16 bits until P is known: of fragment n and half r of the keys, for
/// two queries.
template <int N_TILES>
struct Factors {
    unsigned words[N_TILES][2];

    __device__ __forceinline__ void set(int n, int r, float x, float y) { words[n][r] = Dtype::pack(x, y); }

    /// Those of the first STEP fragments move behind the others.
    template <int STEP>
    __device__ __forceinline__ void rotate() {
        rotate_columns<STEP>(words);
    }

    /// A pair that weighs nothing has no gradient, whatever its factor.
    __device__ __forceinline__ void multiply(int n, int r, float& x, float& y) const {
        x = x == 0 ? 0 : x * Dtype::low(words[n][r]);
        y = y == 0 ? 0 : y * Dtype::high(words[n][r]);
    }
};
