#include "memory/words.cuh"

/// P with 16 bits, as dV takes it. dS is a multiple of dP - delta by another number, which registers hold. Between the exponentials
/// and dV, P waits where this lane will store dS: in shared memory that nobody reads yet. The interface is that of probs_kept.cuh.
struct Probs {
    static constexpr int EARLY_STEPS = 0;

    const Scores& scores;
    Operand& words;
    unsigned place = 0;  // of the lane's row of dS

    __device__ __forceinline__ void begin(unsigned place) { this->place = place; }

    /// Of fragment n and half r of the keys, in order.
    __device__ __forceinline__ void put(int n, int r, float x, float y) {
        word_of(words, n, r) = Dtype::pack(x, y);
        if (n % 2 == 1 && r == 1) store_words(place + n / 2 * 16 * 128, words[n / 2]);
    }

    template <int FIRST, int LAST>
    __device__ __forceinline__ void round() {
        if constexpr (FIRST < LAST) {
            load_words(place + FIRST * 16 * 128, words[FIRST]);
            round<FIRST + 1, LAST>();
        }
    }
};
