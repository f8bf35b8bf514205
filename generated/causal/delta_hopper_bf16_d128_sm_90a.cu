// delta: what the backward pass needs of each row; bf16, head dim 128
// Written by attncc 0.2.0. Do not edit.
//
// Contents, by line:
//    16  leaf code: element.cuh 16, math.cuh 29, bf16.cuh 44, statistics_split_bf16.cuh 58, clear.cuh 92, dot.cuh 104,
//        grid.cuh 145, row_blocks.cuh 197, tiles_1d.cuh 220
//   239  parameters
//   255  the kernel
//   270    FlashAttention-2, Algorithm 2, line 4: delta = rowsum(dO O).

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

constexpr int ROW_ALIGNMENT = 64;

// ---- element.cuh
// 16-bit floats as raw bits: NVRTC has no cuda_fp16.h.
struct fp16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

DEVICE float to_float(fp16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}

DEVICE float to_float(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

// ---- math.cuh
#define NEGATIVE_INFINITY (-__int_as_float(0x7f800000))  // no literal without headers

/// How exponents become probabilities with 16-bit operands: powers of 2, UNIT of them in a natural unit. Where a row's
/// largest exponent begins, and how far it may grow: normalize_softmax.cuh.
struct PowersOfTwo {};

/// x, which is the same in all lanes: kept once for the warp, and so is what is computed from it. Not to be called
/// under a condition: ptxas 13.0 may make the branch a predicate, and use its register too early.
DEVICE int uniform(int x) {
    int result;
    asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
    return result;
}

// ---- bf16.cuh
struct Dtype : PowersOfTwo {
    using Element = bf16;
    static constexpr float NO_WEIGHT = 1e30f;  // exponents below minus this underflow to 0

    static DEVICE unsigned pack(float low, float high) {
        unsigned word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }

    static DEVICE float low(unsigned word) { return __uint_as_float(word << 16); }
};

// ---- statistics_split_bf16.cuh
// What the backward pass knows of a row of Q, lse and delta, as operands of wgmma. A broadcast load from shared memory costs
// each warp a cycle a value; a product with ones costs one k-step. So S and dP get a ninth: rows of B are -lse and -delta in
// parts of 16 bits, together as exact as fp32, and A picks one of them.

/// Eight 16-bit numbers for a row: -lse in parts 0 to 2 and 6, which repeats 0; -delta in parts 3 to 5. They are finite, since
/// those that A doesn't pick meet its zeros. Of a row without weight (lse -inf) they make all
/// probabilities 0.
template <class Dtype> struct Statistics {
    struct SplitBf16 {
        float first, second, third;

        DEVICE explicit SplitBf16(float x) {
            first = Dtype::low(Dtype::pack(x, 0));
            second = Dtype::low(Dtype::pack(x - first, 0));
            third = x - first - second;
        }
    };

    static DEVICE void store(float* statistics, long long row, float lse, float delta) {
        const SplitBf16 minus_lse(lse == NEGATIVE_INFINITY ? -Dtype::NO_WEIGHT : -lse), minus_delta(-delta);
        *(uint4*)(statistics + 4 * row) =
            make_uint4(Dtype::pack(minus_lse.first, minus_lse.second), Dtype::pack(minus_lse.third, minus_delta.first),
                       Dtype::pack(minus_delta.second, minus_delta.third), Dtype::pack(minus_lse.first, 0));
    }

    /// lse, beyond all scores for a row without weight, and delta.
    static DEVICE float2 load(const float* statistics, long long row) {
        const uint4 x = *(const uint4*)(statistics + 4 * row);
        return make_float2(-(Dtype::low(x.x) + Dtype::low(x.x >> 16) + Dtype::low(x.y)),
                           -(Dtype::low(x.y >> 16) + Dtype::low(x.z) + Dtype::low(x.z >> 16)));
    }
};

// ---- clear.cuh
/// Sets words of 4 bytes to 0, a multiple of four of them at a multiple of 16 bytes. `threads` threads share them, of which
/// this is number `thread`.
DEVICE void clear_fours(float* target, int words, int thread, int threads) {
    for (int at = 4 * thread; at < words; at += 4 * threads) *(float4*)(target + at) = float4{};
}

/// Clears any number of words anywhere.
DEVICE void clear_words(int* target, int words, int thread, int threads) {
    for (int at = thread; at < words; at += threads) target[at] = 0;
}

// ---- dot.cuh
/// Eight neighbouring elements as they lie in memory, at a multiple of 16 bytes. Several can be asked for before the first is
/// looked at.
template <class Element> struct Eight {
    static constexpr int LOADS = sizeof(Element) / 2;

    uint4 parts[LOADS];

    /// Zeros where they don't exist. LAST: nothing will read them after this.
    template <bool LAST> DEVICE void load(const Element* address, bool exist) {
        UNROLL for (int i = 0; i < LOADS; ++i) {
            parts[i] = make_uint4(0, 0, 0, 0);
            if (exist) parts[i] = LAST ? __ldcs((const uint4*)address + i) : __ldg((const uint4*)address + i);
        }
    }
};

template <class Half>  // fp16 or bf16
DEVICE void to_floats(float (&x)[8], const Eight<Half>& eight) {
    const uint4 four = eight.parts[0];
    const unsigned words[4] = {four.x, four.y, four.z, four.w};
    UNROLL for (int i = 0; i < 8; ++i) x[i] = to_float(Half{(unsigned short)(words[i / 2] >> i % 2 * 16)});
}

DEVICE void to_floats(float (&x)[8], const Eight<float>& eight) {
    UNROLL for (int half = 0; half < 2; ++half) {
        const uint4 four = eight.parts[half];
        x[4 * half] = __uint_as_float(four.x), x[4 * half + 1] = __uint_as_float(four.y);
        x[4 * half + 2] = __uint_as_float(four.z), x[4 * half + 3] = __uint_as_float(four.w);
    }
}

/// The sum of a[i] b[i].
template <class Element> DEVICE float dot(const Eight<Element>& a, const Eight<Element>& b) {
    float x[8], y[8], sum = 0;
    to_floats(x, a);
    to_floats(y, b);
    UNROLL for (int i = 0; i < 8; ++i) sum = fmaf(x[i], y[i], sum);
    return sum;
}

// ---- grid.cuh
/// What a block works on: `q_len` rows of one sequence and head from `q_start` on, and its keys.
struct Work {
    int sequence;          // b
    int batch_index;       // into the batch axis of the tensors: 0 in a packed batch
    int head, split, q_block;
    int q_start, q_len, kv_start, kv_len;

    /// The row of `lse` (and of the partial results of one split) that belongs to q_idx.
    template <class Params> DEVICE long long lse_row(const Params& params, int q_idx) const {
        return ((long long)batch_index * params.num_heads + head) * params.q_len + q_start + q_idx;
    }
};

/// Entry `index` of cumulative lengths; whatever they hold, no row outside 0..total is named.
DEVICE int sequence_start(const int* cu_seqlens, int index, int total) {
    return min(max(__ldg(cu_seqlens + index), 0), total);
}

/// Where a sequence starts and how long it is: all of the tensor in a dense batch.
template <class AnyWork>
DEVICE void find_span(const AnyWork& work, int& start, int& length, const int* cu_seqlens, int sequence, int total) {
    int first = 0, last = total;
    if (cu_seqlens != nullptr) {
        first = sequence_start(cu_seqlens, sequence, total);
        last = sequence_start(cu_seqlens, sequence + 1, total);
    }
    start = uniform(first);
    length = uniform(max(last - first, 0));
}

/// The rows of the sequence that `work` names.
template <class AnyWork, class Params> DEVICE void find_q_rows(AnyWork& work, const Params& params) {
    find_span(work, work.q_start, work.q_len, params.cu_seqlens_q, work.sequence, params.q_len);
}

/// In a packed batch, which sequence owns a block of rows, or of keys: `block` then counts within it. Each entry of
/// cu_seqlens counts for `rows_each` rows. Sequence s has the blocks from its first row / BLOCK + s on: at least one
/// for each BLOCK of its rows; those to spare have block * BLOCK >= its length.
template <int BLOCK>
DEVICE void find_sequence(int& sequence, int& block, const int* cu_seqlens, int total, int batch, int rows_each = 1) {
    if (cu_seqlens == nullptr) return;
    int low = 0, high = batch;  // the sequence is in [low, high)
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        const int first = sequence_start(cu_seqlens, middle, total) * rows_each / BLOCK + middle;
        (first <= block ? low : high) = middle;
    }
    block -= sequence_start(cu_seqlens, low, total) * rows_each / BLOCK + low;
    sequence = low;
}

// ---- row_blocks.cuh
// What the backward kernels keep of rows lies in blocks of 16 rows, so that 16-byte accesses fit: of each row its statistics,
// and the sum of dQ in fragments. Each sequence and head begins with a block of its own, and ends with as many as fill up a
// multiple of ROW_ALIGNMENT rows, which the kernel that includes this says.
constexpr int ROW_BLOCK = 16, ALIGNED_BLOCKS = ROW_ALIGNMENT / ROW_BLOCK;

/// Row block `index` of all heads: `q_block` counts row blocks here, and what is said of keys isn't known.
template <class Params> DEVICE Work find_row_block(const Params& params, int index) {
    Work work;
    int aligned = index % params.row_blocks / ALIGNED_BLOCKS;
    work.head = index / params.row_blocks % params.num_heads;
    work.sequence = work.batch_index = index / params.row_blocks / params.num_heads;
    find_sequence<ROW_ALIGNMENT>(work.sequence, aligned, params.cu_seqlens_q, params.q_len, params.batch);
    work.q_block = aligned * ALIGNED_BLOCKS + index % ALIGNED_BLOCKS;
    find_q_rows(work, params);
    return work;
}

/// How many row blocks there are.
template <class Params> DEVICE int all_row_blocks(const Params& params) {
    return (params.cu_seqlens_q == nullptr ? params.batch : 1) * params.num_heads * params.row_blocks;
}

// ---- tiles_1d.cuh
/// Where the rows (or keys) of a tile stand: SIZE positions in a row (1-D). The tiles of a sequence, laid out one after
/// the other, are its slots; here slots are positions. See tiles_2d.cuh for tiles of a grid.
template <int SIZE, int WIDTH, int COLUMNS> struct TileOrder {
    static constexpr int BLOCK = SIZE;

    /// The position of a slot of the sequence.
    static DEVICE int position(int slot) { return slot; }
};

using Order = TileOrder<ROW_ALIGNMENT, 1, 1>;  // in which rows are kept

constexpr int VALUE_HEAD_DIM = 128;
constexpr int WARPS = 128 / 32;
constexpr int LANES = 16;       // share a row: the least power of 2 that gives each at most 8 columns
constexpr int ROWS = 32 / LANES;      // of a warp at once
constexpr int ROUNDS = ROW_BLOCK / ROWS, MOST_AHEAD = 4 / Eight<Dtype::Element>::LOADS;
constexpr int AHEAD = ROUNDS < MOST_AHEAD ? ROUNDS : MOST_AHEAD;  // rounds that are asked for together

struct Params {
    const bf16 *out, *dout;
    const float *lse, *dlse;
    float *statistics, *dq_sum;
    const int *cu_seqlens_q;
    int *counts;
    long long out_stride_batch, out_stride_head, out_stride_row;
    long long dout_stride_batch, dout_stride_head, dout_stride_row;
    int batch, num_heads, q_len, row_blocks, sum_words, count_words;
};

/// delta = rowsum(dO O) - dlse, which the softmax takes from dP (FlashAttention-2, Algorithm 2, line 4), and lse, which is
/// -inf for rows that keep nothing and for those that fill up a block: all their probabilities become exactly 0. A warp takes
/// a block of 16 rows of a head, each lane one of them at last. Memory decides how long it takes, so that nothing is waited
/// for before many loads are under way. And it clears what the kernels behind add to: to write beside reading takes less time
/// than a launch of its own, which would only write.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 4) delta(const __grid_constant__ Params params) {
    const int lane = threadIdx.x % 32, index = blockIdx.x * WARPS + threadIdx.x / 32;
    clear_words(params.counts, params.count_words, index * 32 + lane, gridDim.x * 32 * WARPS);
    if (index >= all_row_blocks(params)) return;
    const Work work = find_row_block(params, index);
    auto q_idx_of = [&](int row) { return Order::position(work.q_block * ROW_BLOCK + row); };
    const int own = q_idx_of(lane % ROW_BLOCK), column = lane % LANES * 8;
    const bool exists = own < work.q_len;
    const long long at = exists ? work.lse_row(params, own) : 0;
    const float lse = exists ? __ldg(params.lse + at) : NEGATIVE_INFINITY;
    const float dlse = exists && params.dlse != nullptr ? __ldg(params.dlse + at) : 0;
    const auto* out = params.out + work.batch_index * params.out_stride_batch + work.head * params.out_stride_head +
                      work.q_start * params.out_stride_row + column;
    const auto* dout = params.dout + work.batch_index * params.dout_stride_batch + work.head * params.dout_stride_head +
                       work.q_start * params.dout_stride_row + column;
    // FlashAttention-2, Algorithm 2, line 4: delta = rowsum(dO O).
    float delta = 0;
#pragma unroll 2  // the second are asked for before the first are looked at; more would spill
    for (int first = 0; first < ROUNDS; first += AHEAD) {
        Eight<Dtype::Element> x[AHEAD], y[AHEAD];
        UNROLL for (int i = 0; i < AHEAD; ++i) {
            const int q_idx = q_idx_of((first + i) * ROWS + lane / LANES);
            const bool loads = q_idx < work.q_len && column < VALUE_HEAD_DIM;
            x[i].load<true>(out + q_idx * params.out_stride_row, loads);
            y[i].load<false>(dout + q_idx * params.dout_stride_row, loads);
        }
        UNROLL for (int i = 0; i < AHEAD; ++i) {
            float sum = dot(x[i], y[i]);
            UNROLL for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
            const float whole = __shfl_sync(~0u, sum, lane % ROWS * LANES);
            if (lane / ROWS == first + i) delta = whole;
        }
    }
    if (lane < ROW_BLOCK) Statistics<Dtype>::store(params.statistics, (long long)index * ROW_BLOCK + lane, lse, delta - dlse);
    clear_fours(params.dq_sum + (long long)index * params.sum_words, params.sum_words, lane, 32);
}
