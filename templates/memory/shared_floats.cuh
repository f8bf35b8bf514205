// Floats in shared memory, several at once.

__device__ __forceinline__ float4 load_float4(unsigned address) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(address));
    return x;
}

__device__ __forceinline__ float2 load_float2(unsigned address) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
    return x;
}
