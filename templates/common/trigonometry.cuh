// Sine and cosine of any float, 2 ulp. The exact path for large angles is short, for it stands wherever one is taken:
// CUDA's own, a loop over an array in memory, makes kernels compile for seconds.

/// What is left of an angle, at most pi / 4 to either side, without `quarters` times pi / 2; that count modulo 4.
struct Reduced {
    float rest;
    int quarters;
};

// 2 / pi, behind a word of zeros.
__constant__ unsigned TWO_OVER_PI[7] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                        0xf534ddc0, 0xdb629599, 0x3c439041};

/// From 2^16 on, by those bits of 2 / pi that neither give multiples of 4 nor are too small (Payne and Hanek 1983).
__device__ __forceinline__ Reduced reduce_large(float x) {
    const unsigned bits = __float_as_uint(x), mantissa = bits << 8 | 0x80000000u;
    const int skipped = (int)(bits >> 23 & 255) - 128;  // bits of 2 / pi, the zeros included
    const unsigned* words = TWO_OVER_PI + (skipped >> 5);
    const unsigned first = __funnelshift_l(words[1], words[0], skipped), second = __funnelshift_l(words[2], words[1], skipped);
    const unsigned third = __funnelshift_l(words[3], words[2], skipped);
    // Quarters in units of 2^-62.
    const unsigned long long product = ((unsigned long long)(mantissa * first) << 32) + (unsigned long long)mantissa * second +
                                       ((unsigned long long)mantissa * third >> 32);
    const float left = (float)(long long)(product << 2);
    const float rest = fmaf(left, 0x1.921fb6p-64f, left * -0x1.777a5cp-89f);  // half pi in two parts
    const int quarters = (int)(product >> 62) + (int)(product >> 61 & 1);
    return x < 0 ? Reduced{-rest, -quarters} : Reduced{rest, quarters};
}

/// pi / 2 is taken away in three parts (Cody and Waite 1980), infinities and NaN give NaN.
__device__ __forceinline__ Reduced reduce(float x) {
    const float shifted = fmaf(x, 0x1.45f306p-1f, 0x1.8p23f), quarters = shifted - 0x1.8p23f;
    float rest = fmaf(-quarters, 0x1.921fb0p+0f, x);
    rest = fmaf(-quarters, 0x1.5110b4p-22f, rest);
    rest = fmaf(-quarters, 0x1.84698ap-48f, rest);
    if ((fabsf(x) >= 0x1p16f) & (fabsf(x) < __int_as_float(0x7f800000))) return reduce_large(x);
    return {rest, __float_as_int(shifted)};
}

/// The sine of an angle `quarters` times pi / 2 further on.
__device__ __forceinline__ float sine_from(float x, int quarters) {
    const Reduced angle = reduce(x);
    const int total = angle.quarters + quarters;
    const float square = angle.rest * angle.rest;
    const bool swaps = total & 1;
    float series = fmaf(square, swaps ? 2.443773e-05f : -1.9516656e-04f, swaps ? -1.3887361e-03f : 8.332173e-03f);
    series = fmaf(square, series, swaps ? 4.1666647e-02f : -1.6666655e-01f);
    series = swaps ? fmaf(square, series, -0.5f) : series;
    const float start = swaps ? 1.0f : angle.rest;
    const float result = fmaf(swaps ? square : square * angle.rest, series, start);
    return total & 2 ? -result : result;
}

__device__ __forceinline__ float sine(float x) { return sine_from(x, 0); }

__device__ __forceinline__ float cosine(float x) { return sine_from(x, 1); }
