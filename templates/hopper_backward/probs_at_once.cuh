/// P with 16 bits, as dV takes it. What dS is a multiple of dP - delta by isn't kept in registers, see dscore_factors_in_smem.cuh. The
/// interface is that of probs_kept.cuh.
struct Probs {
    static constexpr int EARLY_STEPS = STEPS;

    const Scores& scores;
    Operand& words;

    __device__ __forceinline__ void begin(unsigned) {}
    __device__ __forceinline__ void put(int n, int r, float x, float y) { word_of(words, n, r) = Dtype::pack(x, y); }

    template <int FIRST, int LAST>
    __device__ __forceinline__ void round() {}
};
