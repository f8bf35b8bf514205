#include "common/element.cuh"

/// Eight neighbouring elements as they lie in memory, at a multiple of 16 bytes. Several can be asked for before the first is
/// looked at.
template <class Element>
struct Eight {
    static constexpr int LOADS = sizeof(Element) / 2;

    uint4 parts[LOADS];

    /// Zeros where they don't exist. LAST: nothing will read them after this.
    template <bool LAST>
    __device__ __forceinline__ void load(const Element* address, bool exist) {
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            parts[i] = make_uint4(0, 0, 0, 0);
            if (exist) parts[i] = LAST ? __ldcs((const uint4*)address + i) : __ldg((const uint4*)address + i);
        }
    }
};

template <class Half>  // fp16 or bf16
__device__ __forceinline__ void to_floats(float (&x)[8], const Eight<Half>& eight) {
    const uint4 four = eight.parts[0];
    const unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = to_float(Half{(unsigned short)(words[i / 2] >> i % 2 * 16)});
}

__device__ __forceinline__ void to_floats(float (&x)[8], const Eight<float>& eight) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const uint4 four = eight.parts[half];
        x[4 * half] = __uint_as_float(four.x), x[4 * half + 1] = __uint_as_float(four.y);
        x[4 * half + 2] = __uint_as_float(four.z), x[4 * half + 3] = __uint_as_float(four.w);
    }
}

/// The sum of a[i] b[i].
template <class Element>
__device__ __forceinline__ float dot(const Eight<Element>& a, const Eight<Element>& b) {
    float x[8], y[8], sum = 0;
    to_floats(x, a);
    to_floats(y, b);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(x[i], y[i], sum);
    return sum;
}
