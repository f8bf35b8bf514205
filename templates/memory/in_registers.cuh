/// What a block knows of itself stays in registers: nothing is spilled. See spilled_to_smem.cuh for the other way.
template <class T>
__device__ __forceinline__ T spilled(const T& x) {
    return x;
}

__device__ __forceinline__ int lane_of_values() { return threadIdx.x % 32; }
__device__ __forceinline__ int lane_of_tests() { return (int)threadIdx.x % 32; }
