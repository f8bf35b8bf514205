// 16-bit floats as raw bits: NVRTC has no cuda_fp16.h.
struct fp16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

__device__ __forceinline__ float to_float(fp16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
