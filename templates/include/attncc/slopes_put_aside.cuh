#include "attncc/words.cuh"

/// What dS is a multiple of dP - delta by, with 16 bits. Between P and dP it waits where this lane will store dS: in shared
/// memory that nobody reads yet, for registers there are none.
struct Slopes {
    static constexpr bool PUT_ASIDE = true;

    unsigned place;  // of the lane's row of dS
    unsigned four[4];

    __device__ __forceinline__ void begin(unsigned place) { this->place = place; }

    /// Of fragment n and half r of the keys, in order.
    __device__ __forceinline__ void put(int n, int r, float x, float y) {
        four[n % 2 * 2 + r] = Dtype::pack(x, y);
        if (n % 2 == 1 && r == 1) store_words(place + n / 2 * 16 * 128, four);
    }

    __device__ __forceinline__ unsigned take(int n, int r, unsigned) {
        if (n % 2 == 0 && r == 0) load_words(place + n / 2 * 16 * 128, four);
        return four[n % 2 * 2 + r];
    }
};
