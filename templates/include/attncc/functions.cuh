// Float functions that CUDA lacks or computes with branches, accurate to about 2 ulp.

__device__ __forceinline__ float fast_reciprocal(float x) {  // 1 ulp
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// An odd polynomial below 0.55, 1 - 2 / (exp(2|x|) + 1) above; both always, since a branch for each element costs more.
__device__ __forceinline__ float tanh_branchless(float x) {
    const float square = x * x;
    float series = fmaf(square, -0.006274238f, 0.021071678f);
    series = fmaf(square, series, -0.053852309f);
    series = fmaf(square, series, 0.13332586f);
    series = fmaf(square, series, -0.33333316f);
    const float near = fmaf(x * square, series, x);
    const float far = fmaf(-2.0f, fast_reciprocal(expf(2.0f * fabsf(x)) + 1.0f), 1.0f);
    return fabsf(x) < 0.55f ? near : copysignf(far, x);
}

__device__ __forceinline__ float sigmoid(float x) { return fast_reciprocal(1.0f + expf(-x)); }

// The greatest int not above x; the nearest end of the range where there is none, and 0 for NaN.
__device__ __forceinline__ long long floor_to_int(float x) { return x == x ? __float2ll_rd(x) : 0; }
