/// What dS is a multiple of dP - delta by: P itself, as dV takes it. The interface is that of slopes_put_aside.cuh.
struct Slopes {
    static constexpr bool PUT_ASIDE = false;

    __device__ __forceinline__ void begin(unsigned) {}
    __device__ __forceinline__ void put(int, int, float, float) {}
    __device__ __forceinline__ unsigned take(int, int, unsigned prob) { return prob; }
};
