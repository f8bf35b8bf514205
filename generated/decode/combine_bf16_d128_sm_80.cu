// combine: merges the partial results of splits; bf16, head dim 128
// Written by attncc 0.1.0. Do not edit.

// ---- element.cuh

// 16-bit floats as raw bits: NVRTC has no cuda_fp16.h.
struct fp16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

__device__ __forceinline__ float to_float(fp16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

// ---- math.cuh

#define NEGATIVE_INFINITY (-__int_as_float(0x7f800000))  // no literal without headers
[[maybe_unused]] constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/// 2^x: one instruction, 2 ulp, results below 2^-126 are 0. exp2f would spend three more on those.
__device__ __forceinline__ float exp2_flushed(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/// How exponents become probabilities with 16-bit operands: powers of 2, UNIT of them in a natural unit. Where a row's
/// largest exponent begins, and how far it may grow: normalize_softmax.cuh.
struct PowersOfTwo {
    static constexpr float UNIT = LOG2_E, NATURAL = LN_2, FIRST = 0, GROWTH = 8;
    static __device__ __forceinline__ float power(float x) { return exp2_flushed(x); }
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

template <class T>
__device__ __forceinline__ T* uniform(T* x) {
    const unsigned long long bits = (unsigned long long)x;
    const unsigned low = uniform((int)bits), high = uniform((int)(bits >> 32));
    return (T*)((unsigned long long)high << 32 | low);
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

// ---- bf16.cuh

struct Dtype : PowersOfTwo {
    using Element = bf16;
    static constexpr unsigned SIGN_BITS = 0x80008000;
    static constexpr float NO_WEIGHT = 1e30f;  // less than this the exponent of a probability may be that must be 0
    static constexpr float LEAST_SCALE = 0x1p-100f, MOST_SCALE = 0x1p100f;  // whose reciprocals are precise in pieces
    static constexpr int WORDS = 1;  // of 32 bits, for two neighbouring columns

    static __device__ __forceinline__ unsigned pack(float low, float high) {
        unsigned word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }

    static __device__ __forceinline__ float low(unsigned word) { return __uint_as_float(word << 16); }
    static __device__ __forceinline__ float high(unsigned word) { return __uint_as_float(word & 0xffff0000); }

    static __device__ __forceinline__ void words(unsigned (&word)[1], float x, float y) { word[0] = pack(x, y); }

    /// sum += a b
    static __device__ __forceinline__ void mma(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

// ---- output.cuh

/// fp32 results as they are. What a type of stored results tells: how two neighbouring columns become 32-bit words.
struct Unrounded {
    using Element = float;
    static constexpr int WORDS = 2;
    static __device__ __forceinline__ void words(unsigned (&word)[2], float x, float y) {
        word[0] = __float_as_uint(x);
        word[1] = __float_as_uint(y);
    }
};

__device__ __forceinline__ void store_words(void* target, const unsigned (&x)[2]) {
    *static_cast<uint2*>(target) = make_uint2(x[0], x[1]);
}

__device__ __forceinline__ void store_words(void* target, const unsigned (&x)[4]) {
    *static_cast<uint4*>(target) = make_uint4(x[0], x[1], x[2], x[3]);
}

/// Stores four neighbouring columns.
template <class Stored>
__device__ __forceinline__ void store_four(typename Stored::Element* target, float4 x) {
    unsigned low[Stored::WORDS], high[Stored::WORDS], all[2 * Stored::WORDS];
    Stored::words(low, x.x, x.y);
    Stored::words(high, x.z, x.w);
#pragma unroll
    for (int word = 0; word < Stored::WORDS; ++word) all[word] = low[word], all[Stored::WORDS + word] = high[word];
    store_words(target, all);
}

/// How the lanes of a quad come to hold four neighbouring columns each, of the 16 of two fragments. Lanes of a pair swap
/// halves of the fragments, so that each stores four columns of one at once and the quad 16 in a row.
struct ColumnsInPairs {
    static __device__ __forceinline__ int first(int lane) { return lane % 4 / 2 * 4 + lane % 2 * 8; }

    template <class Stored>
    static __device__ __forceinline__ void words(unsigned (&packed)[2 * Stored::WORDS], const float (&x)[2][2]) {
        constexpr int WORDS = Stored::WORDS;
        const bool odd = threadIdx.x % 2;
        unsigned mine[2][WORDS];
#pragma unroll
        for (int half = 0; half < 2; ++half) Stored::words(mine[half], x[half][0], x[half][1]);
#pragma unroll
        for (int word = 0; word < WORDS; ++word) {
            const unsigned other = __shfl_xor_sync(~0u, odd ? mine[0][word] : mine[1][word], 1);
            packed[word] = odd ? other : mine[0][word];
            packed[WORDS + word] = odd ? mine[1][word] : other;
        }
    }
};

/// The same where one fragment has the even columns and the next the odd ones: a lane holds its four already.
struct ColumnsInFours {
    static __device__ __forceinline__ int first(int lane) { return lane % 4 * 4; }

    template <class Stored>
    static __device__ __forceinline__ void words(unsigned (&packed)[2 * Stored::WORDS], const float (&x)[2][2]) {
        constexpr int WORDS = Stored::WORDS;
        unsigned mine[2][WORDS];
#pragma unroll
        for (int side = 0; side < 2; ++side) Stored::words(mine[side], x[0][side], x[1][side]);
#pragma unroll
        for (int word = 0; word < 2 * WORDS; ++word) packed[word] = mine[word / WORDS][word % WORDS];
    }
};

/// Where the rows of a tile go: slot i to row `Order::offset(i)` from `target` on, if that is below `rows`; the stride counts
/// elements.
template <class Element, class Order>
struct RowPlaces {
    Element* target;
    long long stride;
    int rows;

    __device__ __forceinline__ bool holds(int slot) const { return Order::offset(slot) < rows; }
    __device__ __forceinline__ long long offset(int slot) const { return Order::offset(slot) * stride; }
};

/// Stores the warp's rows, slots `slot` and M_TILES * 16 - 1 more, where `places` says; of their columns the first COLUMNS (a
/// multiple of 8). Row tile m, half r is multiplied by factor[m][r]. Places are multiples of 16 bytes. All lanes must call.
template <class Stored, int COLUMNS, class Columns = ColumnsInPairs, int M_TILES, int D_TILES, class Places>
__device__ __forceinline__ void store_rows(const Places& places, int slot, const float (&out)[M_TILES][D_TILES][4],
                                           const float (&factor)[M_TILES][2]) {
    const int lane = threadIdx.x % 32, column = Columns::first(lane);
#pragma unroll
    for (int row_pair = 0; row_pair < 2 * M_TILES; ++row_pair) {
        const int m = row_pair / 2, r = row_pair % 2, row = slot + 8 * row_pair + lane / 4;
        // Opaque, or they would be computed anew for each fragment.
        auto* address = places.target + opaque_long(places.offset(row) + column);
        const bool exists = places.holds(row);
#pragma unroll
        for (int d = 0; d < D_TILES; d += 2) {
            float x[2][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i / 2][i % 2] = out[m][d + i / 2][2 * r + i % 2] * factor[m][r];
            unsigned packed[2 * Stored::WORDS];
            Columns::template words<Stored>(packed, x);
            if (exists && (8 * d + 16 <= COLUMNS || 8 * d + column < COLUMNS))
                store_words(address + 8 * d, packed);
        }
    }
}

/// The same of a tile whose row 0 goes to `target`.
template <class Stored, class Order, int COLUMNS, int M_TILES, int D_TILES>
__device__ __forceinline__ void store_rows(typename Stored::Element* target, long long stride, int rows, int slot,
                                           const float (&out)[M_TILES][D_TILES][4], const float (&factor)[M_TILES][2]) {
    store_rows<Stored, COLUMNS>(RowPlaces<typename Stored::Element, Order>{target, stride, rows}, slot, out, factor);
}

/// Stores one value for each of the warp's rows, as `store_rows` does.
template <int M_TILES, class Places>
__device__ __forceinline__ void store_row_values(const Places& places, int slot, const float (&values)[M_TILES][2]) {
    const int lane = threadIdx.x % 32;
    if (lane % 4 != 0) return;
#pragma unroll
    for (int row_pair = 0; row_pair < 2 * M_TILES; ++row_pair) {
        const int row = slot + 8 * row_pair + lane / 4;
        if (places.holds(row)) places.target[places.offset(row)] = values[row_pair / 2][row_pair % 2];
    }
}

constexpr int VALUE_HEAD_DIM = 128;
constexpr int WARPS = 128 / 32;
constexpr int PASSES = (VALUE_HEAD_DIM + 127) / 128;  // a warp takes 128 columns at once
constexpr int WARP_SPLITS = 8;                        // a warp merges so many alone; more are shared by all of the block

struct Params {
    const float *partial_out, *row_max, *row_sum;
    bf16 *out;
    float *lse;
    long long out_stride_batch, out_stride_head, out_stride_row;
    int batch, num_heads, q_len, splits;
};

/// What one warp adds up: its lanes hold four columns each, in each of PASSES.
using Sums = float4[PASSES];

/// The partial results of a row: what each split found.
struct PartialRow {
    const float *out, *row_max, *row_sum;  // of split 0; row_max is null where splits just add up
    long long stride;                      // from split to split, in rows
    int splits;

    /// The largest m of all splits; -inf where none has met a key.
    __device__ __forceinline__ float top() const {
        float top = NEGATIVE_INFINITY;
#pragma unroll 1
        for (int split = threadIdx.x % 32; split < splits; split += 32) top = fmaxf(top, row_max[split * stride]);
        return warp_max(top);
    }

    /// A split's share of the normaliser. A split that met no key has m = -inf and weighs 0; so does every split of a row
    /// without keys.
    __device__ __forceinline__ float weight(int split, float top) const {
        if (split >= splits) return 0;
        if (row_max == nullptr) return 1;
        return top == NEGATIVE_INFINITY ? 0.0f : row_sum[split * stride] * expf(row_max[split * stride] - top);
    }

    __device__ __forceinline__ float weights(float top) const {
        float sum = 0;
#pragma unroll 1
        for (int split = threadIdx.x % 32; split < splits; split += 32) sum += weight(split, top);
        return warp_sum(sum);
    }

    /// Adds up the splits [first, last), weights times `factor`. Each lane makes the weight of one out of 32.
    __device__ __forceinline__ void add(Sums& sums, int first, int last, float top, float factor) const {
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (; first < last; first += 32) {
            const float own = weight(first + lane, top) * factor;
#pragma unroll 8
            for (int i = 0; i < min(last - first, 32); ++i) {
                const float weight = __shfl_sync(~0u, own, i);
                const float* partial = out + (first + i) * stride * VALUE_HEAD_DIM;
#pragma unroll
                for (int pass = 0; pass < PASSES; ++pass) {
                    const int column = 128 * pass + 4 * lane;
                    if (column < VALUE_HEAD_DIM) add_weighted(sums[pass], weight, *(const float4*)(partial + column));
                }
            }
        }
    }

    static __device__ __forceinline__ void add_weighted(float4& sum, float weight, float4 x) {
        sum.x = fmaf(weight, x.x, sum.x);
        sum.y = fmaf(weight, x.y, sum.y);
        sum.z = fmaf(weight, x.z, sum.z);
        sum.w = fmaf(weight, x.w, sum.w);
    }
};

/// Flash-Decoding's reduction: row i of the output is the sum of its splits' rows, each weighted by its share of the
/// normaliser, l_s exp(m_s - m) / l with m = max m_s. Where there are many splits, the warps of a block share a row: each
/// adds up a stretch of them. All sums have one order.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 8) combine(const __grid_constant__ Params params) {
    extern __shared__ __align__(16) unsigned char shared[];
    float* const stretches = (float*)shared;  // [WARPS, VALUE_HEAD_DIM]
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool together = params.splits > WARP_SPLITS;
    const int workers = together ? 1 : WARPS;  // rows that a block works on at once
    const long long rows = (long long)params.batch * params.num_heads * params.q_len;
    const long long step = (long long)gridDim.x * workers;
    for (long long row = (long long)blockIdx.x * workers + (together ? 0 : warp); row < rows; row += step) {
        const bool weighs = params.row_max != nullptr;
        const PartialRow partial = {params.partial_out + row * VALUE_HEAD_DIM, weighs ? params.row_max + row : nullptr,
                                    params.row_sum + row, rows, params.splits};
        const float top = weighs ? partial.top() : 0, sum = weighs ? partial.weights(top) : 1;
        const float factor = sum == 0 ? 0.0f : 1.0f / sum;
        if (lane == 0 && weighs && params.lse != nullptr) params.lse[row] = top + logf(sum);

        const int stretch = together ? (params.splits + WARPS - 1) / WARPS : params.splits, first = together ? warp * stretch : 0;
        Sums sums = {};
        partial.add(sums, first, min(first + stretch, params.splits), top, factor);

        const long long pair = row / params.q_len, batch = pair / params.num_heads;
        auto* out = params.out + batch * params.out_stride_batch + pair % params.num_heads * params.out_stride_head +
                    row % params.q_len * params.out_stride_row;
        if (together) __syncthreads();  // all have read what the row before left
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const int column = 128 * pass + 4 * lane;
            if (column >= VALUE_HEAD_DIM) continue;
            if (together) {
                *(float4*)(stretches + warp * VALUE_HEAD_DIM + column) = sums[pass];
            } else {
                store_four<Dtype>(out + column, sums[pass]);
            }
        }
        if (!together) continue;
        __syncthreads();
#pragma unroll 1
        for (int column = 4 * threadIdx.x; column < VALUE_HEAD_DIM; column += 128 * WARPS) {
            float4 sum = {};
            for (int of = 0; of < WARPS; ++of)
                PartialRow::add_weighted(sum, 1, *(const float4*)(stretches + of * VALUE_HEAD_DIM + column));
            store_four<Dtype>(out + column, sum);
        }
    }
}
