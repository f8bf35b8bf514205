// A kernel that begins when the one ahead of it is done. See finished.cuh for the other way.

template <class Params>
__device__ __forceinline__ void wait_for_heads(const Params&, int, int) {}

__device__ __forceinline__ void wait_for_kernel_ahead() {}
