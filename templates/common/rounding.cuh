// From floats to ints, and signs.

// The nearest int, of two the even one; the nearest end of the range where there is none, and 0 for NaN.
__device__ __forceinline__ long long round_to_int(float x) { return x == x ? __float2ll_rn(x) : 0; }

// -1, 0 or 1; 0 for NaN.
__device__ __forceinline__ float sign(float x) { return (float)((x > 0) - (x < 0)); }

__device__ __forceinline__ int sign(int x) { return (x > 0) - (x < 0); }

__device__ __forceinline__ int sign(long long x) { return (x > 0) - (x < 0); }
