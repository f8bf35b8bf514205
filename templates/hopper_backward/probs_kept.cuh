/// P with 16 bits, as dV takes it. dS is a multiple of dP - delta by P itself, which registers hold until it is made: so P is rounded
/// late, but for the first 16 queries.
struct Probs {
    static constexpr int EARLY_STEPS = DRAINS ? 2 : 1;  // of 16 queries each, that are rounded when all exponents have become P

    const Scores& scores;
    Operand& words;

    __device__ __forceinline__ void begin(unsigned) {}
    __device__ __forceinline__ void put(int, int, float, float) {}

    /// Those of the steps FIRST to LAST - 1.
    template <int FIRST, int LAST>
    __device__ __forceinline__ void round() {
#pragma unroll
        for (int i = 4 * FIRST; i < 4 * LAST; ++i) {
            const float(&four)[4] = scores[0][i / 2];
            word_of(words, i / 2, i % 2) = Dtype::pack(four[i % 2 * 2], four[i % 2 * 2 + 1]);
        }
    }
};
