#include "common/math.cuh"

// Gradients of learnable inputs, added up from pairs. How far a sum goes before it is added to memory depends on what its
// place depends on. All have one interface: `pair` for each pair, in hand the fragment's row `key` of the warp, `column`
// after each column (fragment n, its left or right `side`), and at the end of a tile `row` for each of the two rows that are
// this lane's own (`own_query`), `tile`, and `head`. All but `column` take what adds a float to memory.

/// Words of an exact sum (below).
constexpr int EXACT_WORDS = 17;

/// Adds x to number `place` of sums in memory: floats, or where `exact` asks for it, sums that don't depend on the order. Of
/// such a sum word i counts units of 2^(16 i - 149): a float's 24 bits go to one word, shifted by 15 at most, so 2^24
/// additions fit. The last word counts what is no number.
__device__ __forceinline__ void add_learned(int exact, void* sums, long long place, float x) {
    if (!exact) {
        atomicAdd((float*)sums + place, x);
        return;
    }
    const int bits = __float_as_int(x), biased = bits >> 23 & 255, exponent = max(biased, 1) - 1;
    const long long mantissa = (bits & 0x7fffff) | (biased > 0 ? 0x800000 : 0);
    const long long shifted = mantissa << exponent % 16;
    const bool finite = biased != 255;
    auto* words = (unsigned long long*)sums + place * EXACT_WORDS;
    atomicAdd(words + (finite ? exponent / 16 : EXACT_WORDS - 1),
              (unsigned long long)(!finite ? 1 : bits < 0 ? -shifted : shifted));
}

/// 2^exponent, for exponents of normal doubles.
__device__ __forceinline__ double power_of_two(int exponent) {
    return __longlong_as_double((long long)(1023 + exponent) << 52);
}

__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fffffff); }

/// Sums over the lanes whose number differs in bits of `LANES`.
template <int LANES>
__device__ __forceinline__ float sum_lanes(float x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
        if (LANES & lane) x += __shfl_xor_sync(~0u, x, lane);
    return x;
}

/// The steps in which a sum has nothing to do: who derives from it says the others.
struct IdleSteps {
    __device__ __forceinline__ void begin_tile(bool) {}
    __device__ __forceinline__ void column(int, int) {}
    template <class Add>
    __device__ __forceinline__ void row(int, Add) {}
    template <class Add>
    __device__ __forceinline__ void tile(Add) {}
    template <class Add>
    __device__ __forceinline__ void head(int, Add) {}
};

/// One place for all pairs of a head.
template <int M_TILES>
struct HeadSum : IdleSteps {
    float sum = 0;

    template <class Add>
    __device__ __forceinline__ void pair(int, float x, Add) { sum += x; }
    template <class Add>
    __device__ __forceinline__ void head(int key, Add add) {
        if (key != 0) return;
        sum = sum_lanes<31>(sum);
        if (threadIdx.x % 32 == 0) add(sum);
    }
};

/// A place for each key.
template <int M_TILES>
struct KeySum : IdleSteps {
    float sum[2 * M_TILES] = {};

    template <class Add>
    __device__ __forceinline__ void pair(int key, float x, Add) { sum[key] += x; }
    template <class Add>
    __device__ __forceinline__ void head(int key, Add add) {
        const float x = sum_lanes<3>(sum[key]);
        if (threadIdx.x % 4 == 0) add(x);
    }
};

/// A place for each row. Code that adds to memory is long, so it stands once for each side, not for each column.
template <int M_TILES>
struct RowSum : IdleSteps {
    float sum = 0, own[2];

    __device__ __forceinline__ void begin_tile(bool) { own[0] = own[1] = 0; }
    template <class Add>
    __device__ __forceinline__ void pair(int, float x, Add) { sum += x; }
    __device__ __forceinline__ void column(int n, int side) {
        const float x = sum_lanes<28>(sum);
        if (threadIdx.x % 32 / 4 == n) (side == 0 ? own[0] : own[1]) = x;
        sum = 0;
    }
    template <class Add>
    __device__ __forceinline__ void row(int side, Add add) { add(own[side]); }
};

/// What a tile adds to memory if it is known to have one place.
struct TileSum : IdleSteps {
    float sum;
    bool same;

    __device__ __forceinline__ void begin_tile(bool one_place) {
        sum = 0;
        same = one_place;
    }
    template <class Add>
    __device__ __forceinline__ void tile(Add add) {
        if (!same) return;
        const float x = sum_lanes<31>(sum);
        if (threadIdx.x % 32 == 0) add(x);
    }
};

/// A place for each pair; of a tile that is known to have one place, its sum is added.
template <int M_TILES>
struct PairSum : TileSum {
    template <class Add>
    __device__ __forceinline__ void pair(int, float x, Add add) {
        if (same)
            sum += x;
        else if (x != 0)
            add(x);
    }
};
