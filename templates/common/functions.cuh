#include "common/math.cuh"

// Float functions that CUDA lacks or computes with branches, accurate to 2 ulp or so.

// An odd polynomial below 0.65, 1 - 2 / (exp(2|x|) + 1) above; both always, since a branch for each element costs more.
__device__ __forceinline__ float tanh_branchless(float x) {
    const float square = x * x;
    float series = fmaf(square, -0.0055151616f, 0.020469418f);
    series = fmaf(square, series, -0.053688023f);
    series = fmaf(square, series, 0.1333083f);
    series = fmaf(square, series, -0.3333326f);
    const float near = fmaf(x * square, series, x);
    const float far = fmaf(-2.0f, fast_reciprocal(exp2_flushed(2 * LOG2_E * fabsf(x)) + 1.0f), 1.0f);
    return fabsf(x) < 0.65f ? near : copysignf(far, x);
}

__device__ __forceinline__ float sigmoid(float x) { return fast_reciprocal(1.0f + expf(-x)); }

// The greatest int not above x; the nearest end of the range where there is none, and 0 for NaN.
__device__ __forceinline__ long long floor_to_int(float x) { return x == x ? __float2ll_rd(x) : 0; }
