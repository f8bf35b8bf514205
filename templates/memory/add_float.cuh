/// Adds to a float in global memory. Of an address whose origin the compiler can't see, atomicAdd has to ask each time whether
/// it isn't in shared memory: ten instructions and a loop.
__device__ __forceinline__ void add_float(float* address, float x) {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(address), "f"(x) : "memory");
}
