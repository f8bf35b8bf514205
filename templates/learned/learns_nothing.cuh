/// Of the rows of a tile, two are this lane's own in the end: `side` 0 and 1.
__device__ __forceinline__ int own_query(int side) { return threadIdx.x % 32 / 4 * 8 + threadIdx.x % 4 * 2 + side; }

/// No learnable input is read. The interface is that of the printed struct Learned.
struct NothingLearned {
    __device__ __forceinline__ bool in_one_place() const { return true; }
    __device__ __forceinline__ void begin_apart() {}
    template <class... Pair>
    __device__ __forceinline__ void apart(const Pair&...) {}
    template <class... Pair>
    __device__ __forceinline__ void end_apart(const Pair&...) {}
    template <class... Pair>
    __device__ __forceinline__ void begin_tile(const Pair&...) {}
    template <class... Pair>
    __device__ __forceinline__ void pair(const Pair&...) {}
    template <class... Pair>
    __device__ __forceinline__ void column(const Pair&...) {}
    template <class... Pair>
    __device__ __forceinline__ void row(const Pair&...) {}
    template <class... Pair>
    __device__ __forceinline__ void tile(const Pair&...) {}
    template <class... Pair>
    __device__ __forceinline__ void head(const Pair&...) {}
};
