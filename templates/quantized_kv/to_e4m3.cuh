using Cached = unsigned char;

/// Rounded to nearest, ties to even; what is too large becomes the largest. A NaN is 0x7f. Targets below sm_89 have no instruction
/// for it.
__device__ __forceinline__ Cached quantize(float x) {
    if (x != x) return 0x7f;
    const float size = fminf(fabsf(x), 448.0f);
    const unsigned sign = __float_as_uint(x) >> 24 & 0x80, bits = __float_as_uint(size);
    if (size < 0x1p-6f) return (Cached)(sign | (unsigned)(int)rintf(size * 512));  // subnormal; 8 of its units are the least other
    return (Cached)(sign | ((bits + 0x7ffff + (bits >> 20 & 1) >> 20) - (120 << 3)));
}
