/// What dS of the raw score is to that of the final one: the same. The interface is that of factors_kept.cuh.
template <int N_TILES>
struct Factors {
    __device__ __forceinline__ explicit Factors(float (&)[1][N_TILES][4]) {}
    __device__ __forceinline__ void set(int, int, float, float) {}
    template <int STEP>
    __device__ __forceinline__ void rotate() {}
    __device__ __forceinline__ void multiply(int, int, float&, float&) const {}
};
