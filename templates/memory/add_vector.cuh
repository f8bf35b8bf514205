// Adding up in global memory, four floats at once: sm_90 and later.

__device__ __forceinline__ void add_four(float* address, const float (&x)[4]) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"l"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}

/// Adds a lane's eight numbers of a 16 x 16 tile to the tile's 256; lane after lane, so that a warp's access is four lines.
__device__ __forceinline__ void add_fragment(float* tile, const float (&x)[2][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) add_four(tile + (half * 32 + threadIdx.x % 32) * 4, x[half]);
}

/// Reads them back.
__device__ __forceinline__ void load_fragment(const float* tile, float (&x)[2][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float4 four = *(const float4*)(tile + (half * 32 + threadIdx.x % 32) * 4);
        x[half][0] = four.x, x[half][1] = four.y, x[half][2] = four.z, x[half][3] = four.w;
    }
}
