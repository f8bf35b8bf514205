/// What a block knows of itself, in registers. See parked_rows.cuh for the other way.
template <class T>
__device__ __forceinline__ T parked(const T& x) {
    return x;
}
