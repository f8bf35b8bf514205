using Cached = signed char;

/// Rounded to nearest, ties to even; what is too large becomes the largest, a NaN 0.
__device__ __forceinline__ Cached quantize(float x) {
    return x == x ? (Cached)(int)rintf(fminf(fmaxf(x, -128.0f), 127.0f)) : (Cached)0;
}
