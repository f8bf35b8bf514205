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

/// How exponents become probabilities with 16-bit operands: powers of 2, UNIT of them in a natural unit.
struct PowersOfTwo {
    static constexpr float UNIT = LOG2_E, NATURAL = LN_2;
    static __device__ __forceinline__ float power(float x) { return exp2_flushed(x); }
};

/// The same in fp32, where the factor log2(e) would cost more than all other roundings: powers of e, 1 ulp.
struct PowersOfE {
    static constexpr float UNIT = 1, NATURAL = 1;
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

/// x, which is the same in all lanes: the compiler then keeps it, and what is computed from it, once for the warp. Not to
/// be called under a condition: ptxas 13.0 may make the branch a predicate, use its register for another value too early,
/// and so leave the result unset.
__device__ __forceinline__ int uniform(int x) {
    int result;
    asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
    return result;
}

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

/// Stores the warp's rows: slot i (of M_TILES * 16 from `slot` on) of a tile whose row 0 goes to `target` goes to the row
/// `Order::offset(i)`, if that is below `rows`, `stride` elements each; of its columns the first COLUMNS (a multiple of 8). Row tile m, half r is multiplied by factor[m][r]. `target` and `stride` are
/// multiples of 16 bytes.
///
/// Lanes of a pair swap halves of two neighbouring fragments, so that each stores four columns of one at once and the
/// quad 16 in a row. All lanes must call.
template <class Stored, class Order, int COLUMNS, int M_TILES, int D_TILES>
__device__ __forceinline__ void store_rows(typename Stored::Element* target, long long stride, int rows, int slot,
                                           const float (&out)[M_TILES][D_TILES][4], const float (&factor)[M_TILES][2]) {
    constexpr int WORDS = Stored::WORDS;
    const int lane = threadIdx.x % 32;
    const bool odd = lane % 2;
    const int column = lane % 4 / 2 * 4 + odd * 8;
#pragma unroll
    for (int row_pair = 0; row_pair < 2 * M_TILES; ++row_pair) {
        const int m = row_pair / 2, r = row_pair % 2, row = Order::offset(slot + 8 * row_pair + lane / 4);
        auto* address = target + row * stride + column;
#pragma unroll
        for (int d = 0; d < D_TILES; d += 2) {
            unsigned mine[2][WORDS], packed[2 * WORDS];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                Stored::words(mine[half], out[m][d + half][2 * r] * factor[m][r], out[m][d + half][2 * r + 1] * factor[m][r]);
#pragma unroll
            for (int word = 0; word < WORDS; ++word) {
                const unsigned other = __shfl_xor_sync(~0u, odd ? mine[0][word] : mine[1][word], 1);
                packed[word] = odd ? other : mine[0][word];
                packed[WORDS + word] = odd ? mine[1][word] : other;
            }
            if (row < rows && (8 * d + 16 <= COLUMNS || 8 * d + column < COLUMNS))
                store_words(address + 8 * d, packed);
        }
    }
}

/// Stores one value for each of the warp's rows, as `store_rows` does.
template <class Order, int M_TILES>
__device__ __forceinline__ void store_row_values(float* target, int rows, int slot, const float (&values)[M_TILES][2]) {
    const int lane = threadIdx.x % 32;
    if (lane % 4 != 0) return;
#pragma unroll
    for (int row_pair = 0; row_pair < 2 * M_TILES; ++row_pair) {
        const int row = Order::offset(slot + 8 * row_pair + lane / 4);
        if (row < rows) target[row] = values[row_pair / 2][row_pair % 2];
    }
}

constexpr int VALUE_HEAD_DIM = 128;
constexpr int WARPS = 128 / 32;

struct Params {
    const float *partial_out, *row_max, *row_sum;
    bf16 *out;
    float *lse;
    long long out_stride_batch, out_stride_head, out_stride_row;
    int batch, num_heads, q_len, splits;
};

/// Flash-Decoding's reduction: row i of the output is the sum of its splits' rows, each weighted by its share of the
/// normaliser, l_s exp(m_s - m) / l with m = max m_s. A split that met no key has m_s = -inf and weighs 0; so does every
/// split of a row without keys. A warp takes a row at a time; sums run in the order of the splits.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 8) combine(const __grid_constant__ Params params) {
    const int lane = threadIdx.x % 32;
    const long long rows = (long long)params.batch * params.num_heads * params.q_len;
    for (long long row = blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += gridDim.x * WARPS) {
        const bool weighs = params.row_max != nullptr;  // else the variant has no normaliser, and splits just add up
        const float *row_max = params.row_max + row, *row_sum = params.row_sum + row;
        float top = NEGATIVE_INFINITY, sum = 0;
        auto weight_of = [&](int split) {
            return top == NEGATIVE_INFINITY ? 0.0f : row_sum[split * rows] * expf(row_max[split * rows] - top);
        };
        if (weighs) {
            for (int split = 0; split < params.splits; ++split) top = fmaxf(top, row_max[split * rows]);
            for (int split = 0; split < params.splits; ++split) sum += weight_of(split);
            if (lane == 0 && params.lse != nullptr) params.lse[row] = top + logf(sum);
        }
        const float factor = !weighs ? 1.0f : sum == 0 ? 0.0f : 1.0f / sum;

        const long long pair = row / params.q_len, batch = pair / params.num_heads;
        auto* out = params.out + batch * params.out_stride_batch + pair % params.num_heads * params.out_stride_head +
                    row % params.q_len * params.out_stride_row;
        for (int column = 4 * lane; column < VALUE_HEAD_DIM; column += 128) {
            const float* partial = params.partial_out + row * VALUE_HEAD_DIM + column;
            float4 sum = {};
#pragma unroll 4
            for (int split = 0; split < params.splits; ++split) {
                const float4 x = *(const float4*)(partial + split * rows * VALUE_HEAD_DIM);
                const float weight = weighs ? weight_of(split) * factor : 1.0f;
                sum.x = fmaf(weight, x.x, sum.x);
                sum.y = fmaf(weight, x.y, sum.y);
                sum.z = fmaf(weight, x.z, sum.z);
                sum.w = fmaf(weight, x.w, sum.w);
            }
            store_four<Dtype>(out + column, sum);
        }
    }
}
