#include "attncc/element.cuh"

/// Eight neighbouring elements, at a multiple of 16 bytes.
template <class Half>  // fp16 or bf16
__device__ __forceinline__ void load_eight(const Half* address, float (&x)[8]) {
    const uint4 four = *(const uint4*)address;
    const unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = to_float(Half{(unsigned short)(words[i / 2] >> i % 2 * 16)});
}

__device__ __forceinline__ void load_eight(const float* address, float (&x)[8]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float4 four = *(const float4*)(address + 4 * half);
        x[4 * half] = four.x, x[4 * half + 1] = four.y, x[4 * half + 2] = four.z, x[4 * half + 3] = four.w;
    }
}

/// The sum of a[i] b[i] over the eight columns from `column` on; 0 beyond the last of COLUMNS, a multiple of 8.
template <int COLUMNS, class Element>
__device__ __forceinline__ float dot_eight(const Element* a, const Element* b, int column) {
    if (column >= COLUMNS) return 0;
    float x[8], y[8], sum = 0;
    load_eight(a + column, x);
    load_eight(b + column, y);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(x[i], y[i], sum);
    return sum;
}
