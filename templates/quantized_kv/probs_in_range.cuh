/// Probabilities of a softmax that no scales multiply are at most 2^Dtype::GROWTH, which fp16 has room for.
struct ProbsInRange {
    __device__ __forceinline__ void begin() {}

    template <class Probs, class Out>
    __device__ __forceinline__ void take(Probs&, Out&) {}

    /// What O of a row is to be multiplied by.
    static constexpr __device__ __forceinline__ float rest(int, int) { return 1; }
};
