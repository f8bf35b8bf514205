// A sum that began with zeros.

template <class Params>
__device__ __forceinline__ bool has_sum(const Params&, int) {
    return true;
}
