/// As `spilled` below, but not to be read before the block's next barrier.
template <class T>
__device__ __forceinline__ const T& spilling(const T& x) {
    __shared__ T place;
    if (threadIdx.x == 0) place = x;
    return place;
}

/// x, which is the same in all threads of the block, in shared memory: for what a loop asks of it seldom and has no registers
/// for. It is read anew after each wait for copies, which may write anywhere for all the compiler knows. All threads must call.
template <class T>
__device__ __forceinline__ const T& spilled(const T& x) {
    const T& place = spilling(x);
    __syncthreads();
    return place;
}
