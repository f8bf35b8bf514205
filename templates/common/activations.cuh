#include "common/functions.cuh"

// Activation functions of neural networks, accurate to 2 ulp or so; what gelu is below 0, to 1e-6 of it.

// log(1 + exp(x)), which neither overflows nor loses what is small.
__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

// x times the normal distribution's probability of at most x: erfc has it also where 1 + erf would cancel.
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * erfcf(-0.70710678f * x); }

// Its approximation by tanh: 0.5 x (1 + tanh(u)) is x sigmoid(2 u), with 2 u = sqrt(8 / pi) (x + 0.044715 x^3).
__device__ __forceinline__ float gelu_tanh(float x) {
    return x * sigmoid(x * fmaf(0.071354816f, x * x, 1.5957691f));
}
