#include "common/element.cuh"

// Elements of the inputs. They don't change while a kernel runs, so loads take the read-only path, and the compiler may
// merge and move them.

__device__ __forceinline__ bool load(const unsigned char* address) { return __ldg(address) != 0; }
__device__ __forceinline__ int load(const int* address) { return __ldg(address); }
__device__ __forceinline__ long long load(const long long* address) { return __ldg(address); }
__device__ __forceinline__ float load(const float* address) { return __ldg(address); }
__device__ __forceinline__ float load(const fp16* address) { return to_float(fp16{__ldg(&address->bits)}); }
__device__ __forceinline__ float load(const bf16* address) { return to_float(bf16{__ldg(&address->bits)}); }

// `load`, or 0 where `inside` is false: one predicated instruction, no branch, and nothing is read.
__device__ __forceinline__ bool load_if(bool inside, const unsigned char* address) {
    unsigned value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.u8 %0, [%1]; }"
        : "+r"(value) : "l"(address), "r"((int)inside));
    return value != 0;
}

__device__ __forceinline__ int load_if(bool inside, const int* address) {
    int value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.b32 %0, [%1]; }"
        : "+r"(value) : "l"(address), "r"((int)inside));
    return value;
}

__device__ __forceinline__ long long load_if(bool inside, const long long* address) {
    long long value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.b64 %0, [%1]; }"
        : "+l"(value) : "l"(address), "r"((int)inside));
    return value;
}

__device__ __forceinline__ float load_if(bool inside, const float* address) {
    float value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.f32 %0, [%1]; }"
        : "+f"(value) : "l"(address), "r"((int)inside));
    return value;
}

template <class Half>  // fp16 or bf16
__device__ __forceinline__ float load_if(bool inside, const Half* address) {
    unsigned short value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.b16 %0, [%1]; }"
        : "+h"(value) : "l"(address), "r"((int)inside));
    return to_float(Half{value});
}

// A scalar input: given by address (so that CUDA graphs see its present value) or by value.
template <class Element, class Value>
__device__ __forceinline__ auto scalar(const Element* address, Value value) -> decltype(load(address)) {
    return address != nullptr ? load(address) : value;
}

__device__ __forceinline__ bool in_range(int index, int size) { return (unsigned)index < (unsigned)size; }
__device__ __forceinline__ bool in_range(long long index, int size) {
    return (unsigned long long)index < (unsigned long long)size;
}
