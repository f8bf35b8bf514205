/// Where the sum of dQ begins with zeros: all add. The interface is that of first_stores.cuh.
struct FirstStores {
    template <class Params>
    static __device__ __forceinline__ int place(const Params&, int row_block) {
        return row_block;
    }
    static __device__ __forceinline__ int row_block(int place) { return place; }

    template <class Params>
    __device__ __forceinline__ void claim(const Params&, int) {}
    template <class Params>
    __device__ __forceinline__ bool stores(const Params&, int) {
        return false;
    }
    template <class Params>
    __device__ __forceinline__ void publish(const Params&, int) const {}
};
