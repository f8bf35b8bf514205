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
    __device__ __forceinline__ void tile(const Pair&...) {}
    template <class... Pair>
    __device__ __forceinline__ void head(const Pair&...) {}
};
