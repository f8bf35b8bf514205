#include "common/rotation.cuh"

/// What dS of the raw score is to that of the final one, where dP will be, until P is known: of fragment n and half r of the
/// keys, for two queries.
template <int N_TILES>
struct Factors {
    float (&values)[1][N_TILES][4];

    __device__ __forceinline__ void set(int n, int r, float x, float y) {
        values[0][n][2 * r] = x;
        values[0][n][2 * r + 1] = y;
    }

    /// Those of the first STEP fragments move behind the others.
    template <int STEP>
    __device__ __forceinline__ void rotate() {
        rotate_columns<STEP>(values[0]);
    }

    /// A pair that weighs nothing has no gradient, whatever its factor.
    __device__ __forceinline__ void multiply(int n, int r, float& x, float& y) const {
        x = x == 0 ? 0 : x * values[0][n][2 * r];
        y = y == 0 ? 0 : y * values[0][n][2 * r + 1];
    }
};
