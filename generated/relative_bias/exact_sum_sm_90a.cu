// exact_sum: rounds the sums of gradients of learnable inputs
// Written by attncc 0.2.0. Do not edit.

// ---- math.cuh

#define NEGATIVE_INFINITY (-__int_as_float(0x7f800000))  // no literal without headers
[[maybe_unused]] constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/// 2^x: one instruction, 2 ulp, results below 2^-126 are 0. exp2f would spend three more on those.
__device__ __forceinline__ float exp2_flushed(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/// log2(x), x not below 2^-126: one instruction, 2^-22 of the result, or of 1 where x is near 1.
__device__ __forceinline__ float log2_approximate(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ float fast_reciprocal(float x) {  // 1 ulp
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/// 1 / x where both are normal: what CUDA computes, without its branch for all others.
__device__ __forceinline__ float normal_reciprocal(float x) {
    const float result = fast_reciprocal(x);
    return fmaf(result, fmaf(-x, result, 1.0f), result);
}

/// How exponents become probabilities with 16-bit operands: powers of 2, UNIT of them in a natural unit. Where a row's
/// largest exponent begins, and how far it may grow: normalize_softmax.cuh.
struct PowersOfTwo {
    static constexpr float UNIT = LOG2_E, NATURAL = LN_2, FIRST = 0, GROWTH = 8;
    static __device__ __forceinline__ float power(float x) { return exp2_flushed(x); }

    /// What ldmatrix brings is multiplied in so many parts: 8 bits in two, in another dtype.
    static constexpr int PARTS = 1;
    static __device__ __forceinline__ void take_part(unsigned (&)[4], int) {}
};

/// The same in fp32, where the factor log2(e) would cost more than all other roundings: powers of e, 1 ulp.
struct PowersOfE {
    static constexpr float UNIT = 1, NATURAL = 1, FIRST = 0, GROWTH = 8;
    static __device__ __forceinline__ float power(float x) { return expf(x); }
};

/// The largest of the four values that the lanes of a quad hold.
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

/// x, which is the same in all lanes: the compiler then keeps it, and what is computed from it, once for the warp. Not to
/// be called under a condition: ptxas 13.0 may make the branch a predicate, use its register for another value too early,
/// and so leave the result unset.
__device__ __forceinline__ int uniform(int x) {
    int result;
    asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
    return result;
}

__device__ __forceinline__ float uniform_float(float x) { return __int_as_float(uniform(__float_as_int(x))); }

__device__ __forceinline__ long long uniform_long(long long x) {
    const unsigned low = uniform((int)x), high = uniform((int)(x >> 32));
    return (long long)((unsigned long long)high << 32 | low);
}

template <class T>
__device__ __forceinline__ T* uniform(T* x) {
    return (T*)uniform_long((long long)x);
}

/// x, in a way that keeps the compiler from computing ahead of a loop what depends on it: that would take registers from
/// the whole loop.
__device__ __forceinline__ int opaque(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

__device__ __forceinline__ long long opaque_long(long long x) {
    asm volatile("" : "+l"(x));
    return x;
}

template <class T>
__device__ __forceinline__ T* opaque(T* x) {
    asm volatile("" : "+l"(x));
    return x;
}

__device__ __forceinline__ float opaque_float(float x) {
    asm volatile("" : "+f"(x));
    return x;
}

/// The same for a whole struct of 32-bit words.
template <class T>
__device__ __forceinline__ T uniform_struct(const T& x) {
    int words[sizeof(T) / 4];
    memcpy(words, &x, sizeof(T));
    for (int& word : words) word = uniform(word);
    T result;
    memcpy(&result, words, sizeof(T));
    return result;
}

/// threadIdx.x, read anew each time: kept, it and what is computed from it would take registers from a loop.
__device__ __forceinline__ int thread_index() {
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}

// ---- learned.cuh

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

struct Params {
    const long long *sums;
    float *out;
    long long count;
};

/// Rounds exact sums (learned.cuh) to floats, from the largest word down: the same bits whatever the order of additions was.
extern "C" __global__ void __launch_bounds__(128) exact_sum(const __grid_constant__ Params params) {
    const long long first = (long long)blockIdx.x * 128 + threadIdx.x;
    for (long long i = first; i < params.count; i += (long long)gridDim.x * 128) {
        const long long* words = params.sums + i * EXACT_WORDS;
        double sum = 0;
        for (int word = EXACT_WORDS - 2; word >= 0; --word) sum += (double)words[word] * power_of_two(16 * word - 149);
        params.out[i] = words[EXACT_WORDS - 1] != 0 ? not_a_number() : (float)sum;
    }
}
