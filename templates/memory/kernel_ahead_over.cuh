// A kernel that begins when the one ahead of it is over. See kernel_ahead.cuh for the other way.

__device__ __forceinline__ void await_kernel_ahead() {}

template <bool SCALES, class Params>
__device__ __forceinline__ void await_lengths(const Params&) {}
