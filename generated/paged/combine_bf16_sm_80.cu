// combine: merges the partial results of splits; bf16
// Written by attncc 0.2.0. Do not edit.

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

/// How the lanes of a quad store the 16 columns of two fragments, of which each holds two neighbours of both. Words of 16-bit
/// columns go in fours: lanes of a pair swap halves of the fragments, so that each stores four columns of one at once. In fp32
/// the quad's pairs are 32 bytes in a row, a whole sector, as they stand.
struct ColumnsInPairs {
    template <class Stored>
    static __device__ __forceinline__ int first(int lane) {
        return Stored::WORDS == 1 ? lane % 4 / 2 * 4 + lane % 2 * 8 : lane % 4 * 2;
    }

    /// `target`: where the lane's first column goes; of those from it on, `columns` exist.
    template <class Stored>
    static __device__ __forceinline__ void store(typename Stored::Element* target, const float (&x)[2][2], int columns, [[maybe_unused]] int lane) {
        if constexpr (Stored::WORDS == 1) {
            const bool odd = lane % 2;
            unsigned low[1], high[1];
            Stored::words(low, x[0][0], x[0][1]);
            Stored::words(high, x[1][0], x[1][1]);
            const unsigned other = __shfl_xor_sync(~0u, odd ? low[0] : high[0], 1);
            const unsigned packed[2] = {odd ? other : low[0], odd ? high[0] : other};
            if (columns > 0) store_words(target, packed);
        } else {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                unsigned packed[2];
                Stored::words(packed, x[half][0], x[half][1]);
                if (columns > 8 * half) store_words(target + 8 * half, packed);
            }
        }
    }
};

/// The same where one fragment has the even columns and the next the odd ones: a lane holds four neighbours already.
struct ColumnsInFours {
    template <class Stored>
    static __device__ __forceinline__ int first(int lane) {
        return lane % 4 * 4;
    }

    template <class Stored>
    static __device__ __forceinline__ void store(typename Stored::Element* target, const float (&x)[2][2], int columns, [[maybe_unused]] int lane) {
        if (columns > 0) store_four<Stored>(target, {x[0][0], x[1][0], x[0][1], x[1][1]});
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
/// multiple of 8). Row tile m, half r is multiplied by factor[m][r]. Places are multiples of 16 bytes. All lanes must call; who has a long loop before reads `lane` anew.
template <class Stored, int COLUMNS, class Columns = ColumnsInPairs, int M_TILES, int D_TILES, class Places>
__device__ __forceinline__ void store_rows(const Places& places, int slot, const float (&out)[M_TILES][D_TILES][4],
                                           const float (&factor)[M_TILES][2], int lane = threadIdx.x % 32) {
    const int column = Columns::template first<Stored>(lane);
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
            const int columns = 8 * d + 16 <= COLUMNS ? 16 : COLUMNS - 8 * d - column;
            Columns::template store<Stored>(address + 8 * d, x, exists ? columns : 0, lane);
        }
    }
}

/// The same of a tile whose row 0 goes to `target`.
template <class Stored, class Order, int COLUMNS, int M_TILES, int D_TILES>
__device__ __forceinline__ void store_rows(typename Stored::Element* target, long long stride, int rows, int slot,
                                           const float (&out)[M_TILES][D_TILES][4], const float (&factor)[M_TILES][2],
                                           int lane = threadIdx.x % 32) {
    store_rows<Stored, COLUMNS>(RowPlaces<typename Stored::Element, Order>{target, stride, rows}, slot, out, factor, lane);
}

/// How many of the 2 * M_TILES rows that the lanes of a quad share are one lane's own, where each row is to be one lane's.
template <int M_TILES>
constexpr int OWN_ROWS = (2 * M_TILES + 3) / 4;

/// Of these rows, in fours, each lane owns the one of this number.
__device__ __forceinline__ int own_row() { return threadIdx.x % 4; }

/// Stores one value for each of the warp's rows, as `store_rows` does: this lane those of its own rows.
template <int M_TILES, class Places, class Value>
__device__ __forceinline__ void store_row_values(const Places& places, int slot, Value value) {
#pragma unroll
    for (int own = 0; own < OWN_ROWS<M_TILES>; ++own) {
        const float x = value(own);
        const int number = 4 * own + own_row(), row = slot + 8 * number + threadIdx.x % 32 / 4;
        if (number < 2 * M_TILES && places.holds(row)) places.target[places.offset(row)] = x;
    }
}

constexpr int WARPS = 128 / 32;
constexpr int MAX_HEAD_DIM = 256, MAX_SPLITS = 256;
constexpr int WARP_SPLITS = 8;  // a warp merges so many alone; more are shared by all of the block

struct Params {
    const float *partial_out, *row_max, *row_sum;
    bf16 *out;
    float *lse;
    long long out_stride_batch, out_stride_head, out_stride_row;
    int batch, num_heads, q_len, splits;
    int value_head_dim;
};

__device__ __forceinline__ void add_weighted(float4& sum, float weight, float4 x) {
    sum.x = fmaf(weight, x.x, sum.x);
    sum.y = fmaf(weight, x.y, sum.y);
    sum.z = fmaf(weight, x.z, sum.z);
    sum.w = fmaf(weight, x.w, sum.w);
}

/// The shares of a row's normaliser that its splits found, l_s exp(m_s - m), one for each of `weights`. Returns l, their sum;
/// `top` is m, the largest m_s, -inf where none has met a key. All lanes of the warp must call.
__device__ __forceinline__ float weigh(float* weights, float& top, const float* row_max, const float* row_sum, int splits,
                                       int rows) {
    const int lane = threadIdx.x % 32;
    float sum = 0;
    top = NEGATIVE_INFINITY;
#pragma unroll 1
    for (int split = lane; split < splits; split += 32) top = fmaxf(top, row_max[(long long)split * rows]);
    top = warp_max(top);
#pragma unroll 1
    for (int split = lane; split < splits; split += 32) {
        const long long place = (long long)split * rows;
        // A split that met no key has m = -inf, and weighs 0; so does every split of a row without keys.
        const float weight = top == NEGATIVE_INFINITY ? 0.0f : row_sum[place] * expf(row_max[place] - top);
        weights[split] = weight;
        sum += weight;
    }
    return warp_sum(sum);
}

/// Flash-Decoding's reduction: row i of the output is the sum of its splits' rows, each weighted by its share of the
/// normaliser; where there is none (`row_max` is null) they just add up. A warp takes a row at a time. Where there are many
/// splits, the warps of a block share a row: each adds up a stretch of them. All sums have one order.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 8) combine(const __grid_constant__ Params params) {
    extern __shared__ __align__(16) unsigned char shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, splits = params.splits, columns = params.value_head_dim;
    float* const stretches = (float*)shared;  // [WARPS, columns]
    float* const weights = stretches + WARPS * MAX_HEAD_DIM + warp * MAX_SPLITS;  // the warp's own
    const bool together = splits > WARP_SPLITS;
    const int workers = together ? 1 : WARPS;  // rows that a block works on at once
    const int stretch = together ? (splits + WARPS - 1) / WARPS : splits, first = together ? warp * stretch : 0;
    const int last = min(first + stretch, splits);
    const int rows = params.batch * params.num_heads * params.q_len;  // partial results of more than an int counts fit no GPU
    const long long split_stride = (long long)rows * columns;
#pragma unroll 1
    for (int split = lane; split < splits; split += 32) weights[split] = 1;
#pragma unroll 1
    for (int row = blockIdx.x * workers + (together ? 0 : warp); row < rows; row += gridDim.x * workers) {
        __syncwarp();  // all lanes have read the weights of the row before
        if (params.row_max != nullptr) {
            float top;
            const float sum = weigh(weights, top, params.row_max + row, params.row_sum + row, splits, rows);
            if (lane == 0 && params.lse != nullptr) params.lse[row] = top + logf(sum);
            const float factor = sum == 0 ? 0.0f : 1.0f / sum;
            // Here and not after the sums: where one split alone has met keys, l_s / l is 1, and its row stays as it is.
#pragma unroll 1
            for (int split = lane; split < splits; split += 32) weights[split] *= factor;
        }
        __syncwarp();
        if (together) __syncthreads();  // all warps have read the stretches of the row before

        const int pair = row / params.q_len, batch = pair / params.num_heads;
        auto* out = params.out + batch * params.out_stride_batch + pair % params.num_heads * params.out_stride_head +
                    row % params.q_len * params.out_stride_row;
#pragma unroll 1
        for (int column = 4 * lane; column < columns; column += 128) {
            const float* partial = params.partial_out + first * split_stride + (long long)row * columns + column;
            float4 sum = {};
#pragma unroll 8
            for (int split = first; split < last; ++split, partial += split_stride)
                add_weighted(sum, weights[split], *(const float4*)partial);
            if (together) {
                *(float4*)(stretches + warp * columns + column) = sum;
            } else {
                store_four<Dtype>(out + column, sum);
            }
        }
        if (!together) continue;
        __syncthreads();
#pragma unroll 1
        for (int column = 4 * threadIdx.x; column < columns; column += 128 * WARPS) {
            float4 sum = {};
#pragma unroll 1
            for (int of = 0; of < WARPS; ++of) add_weighted(sum, 1, *(const float4*)(stretches + of * columns + column));
            store_four<Dtype>(out + column, sum);
        }
    }
}
