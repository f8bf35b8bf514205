// tile_lists: the live tiles of each block of 64 queries of paged_bf16_d128_sm_80
// Written by attncc 0.2.0. Do not edit.

// ---------------------------------------------------------------- sizes

constexpr int BLOCK_Q = 64;
constexpr int BLOCK_KV = 32;
constexpr int WARPS = 4;
[[maybe_unused]] constexpr int STAGES = 1;
[[maybe_unused]] constexpr int HEAD_DIM = 128, PADDED_HEAD_DIM = 128;
constexpr int VALUE_HEAD_DIM = 128, PADDED_VALUE_HEAD_DIM = 128;

[[maybe_unused]] constexpr int THREADS = 32 * WARPS;
constexpr int WARP_ROWS = BLOCK_Q / WARPS;
constexpr int M_TILES = WARP_ROWS / 16;            // of 16 rows each, the rows of a warp
constexpr int N_TILES = BLOCK_KV / 8;              // of 8 columns each, the scores
[[maybe_unused]] constexpr int SCORE_STEP = 4;  // of which so many at once become scores
[[maybe_unused]] constexpr int MASKED_STEP = 4;  // and of those of masked tiles so many
constexpr int D_TILES = PADDED_VALUE_HEAD_DIM / 8;  // and the output

// ---------------------------------------------------------------- leaf code

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

// ---- row_references.cuh

/// What exponents of the rows of a warp are relative to, as long as it stays. Who derives from it (normalize_softmax.cuh,
/// trust_softmax.cuh) says when it moves.
template <int M_TILES>
struct RowReferences {
    float factor;              // exponent (see Dtype::power) in one unit of the scores; positive
    float offset[M_TILES][2];  // minus the reference of each row, as an exponent

    __device__ __forceinline__ explicit RowReferences(float factor) : factor(factor) {}

    /// The score of a pair that isn't kept.
    static __device__ __forceinline__ float masked() { return NEGATIVE_INFINITY; }

    template <class Visit>
    static __device__ __forceinline__ void each_row(Visit visit) {
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) visit(row / 2, row % 2);
    }

    /// An exponent relative to the row's reference.
    __device__ __forceinline__ float exponent(int m, int r, float score) const { return fmaf(score, factor, offset[m][r]); }

    template <int N_TILES>
    __device__ __forceinline__ void to_exponents(float (&scores)[M_TILES][N_TILES][4]) const {
#pragma unroll
        for (int i = 0; i < 4 * M_TILES * N_TILES; ++i) {
            float& x = scores[i / (4 * N_TILES)][i / 4 % N_TILES][i % 4];
            x = exponent(i / (4 * N_TILES), i % 4 / 2, x);
        }
    }
};

// ---- normalize_softmax.cuh

/// Online softmax (Milakov and Gimelshein 2018; FlashAttention-2, Algorithm 1, lines 8 to 12) of the rows of a warp, with
/// one liberty that leaves the result exact: any reference serves in place of a row's maximum. So it moves only when an
/// exponent is above Dtype::GROWTH (then P would leave 2^8, in fp32 e^8), a rare branch that the warp takes as a whole, and
/// makes the largest Dtype::FIRST (0: P is 1). Without it no maximum crosses the quad, and neither sums nor outputs are rescaled.
template <int M_TILES>
struct Normalizer : RowReferences<M_TILES> {
    using References = RowReferences<M_TILES>;
    using References::offset, References::each_row;

    float row_sum[M_TILES][2];   // of this lane's columns, relative to the reference
    float tile_sum[M_TILES][2];  // the same, of the tile in hand

    /// `unit`: natural units in one unit of the scores; positive.
    __device__ __forceinline__ explicit Normalizer(float unit) : References(unit * Dtype::UNIT) {
        each_row([&](int m, int r) { offset[m][r] = row_sum[m][r] = 0; });
    }

    /// Whether the references serve a tile's exponents. All lanes of the warp must agree on what follows.
    template <int N_TILES>
    __device__ __forceinline__ bool serves(const float (&exponents)[M_TILES][N_TILES][4]) const {
        // As ints, positive floats are in order and above all negative ones. Hopper compares three at once.
        int top[4] = {};
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float x = exponents[m][n][i], y = exponents[m][n + 1][i];
                    top[i] = max(max(top[i], __float_as_int(x)), __float_as_int(y));
                }
        const float peak = __int_as_float(max(max(top[0], top[1]), max(top[2], top[3])));
        float least_sum = row_sum[0][0];
        each_row([&](int m, int r) { least_sum = fminf(least_sum, row_sum[m][r]); });
        return (peak <= Dtype::GROWTH) & (least_sum > 0);  // false for NaN
    }

    /// Moves the references if need be. All lanes must call.
    template <int N_TILES, int D_TILES>
    __device__ __forceinline__ void settle(float (&exponents)[M_TILES][N_TILES][4], float (&out)[M_TILES][D_TILES][4]) {
        if (!__all_sync(~0u, serves(exponents))) each_row([&](int m, int r) { move(m, r, exponents, out); });
    }

    __device__ __forceinline__ void begin_tile() {
        each_row([&](int m, int r) { tile_sum[m][r] = 0; });
    }

    /// Makes the row's largest exponent so far FIRST. A row whose sum is 0 has none: it has met only scores of -inf.
    /// Each lane gets a share of the sum, so that its own part tells that there is a reference.
    template <int N_TILES, int D_TILES>
    __device__ __forceinline__ void move(int m, int r, float (&exponents)[M_TILES][N_TILES][4],
                                         float (&out)[M_TILES][D_TILES][4]) {
        float peak = NEGATIVE_INFINITY;
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) peak = fmaxf(peak, fmaxf(exponents[m][n][2 * r], exponents[m][n][2 * r + 1]));
        peak = quad_max(peak);
        const float sum = quad_sum(row_sum[m][r]);
        const float excess = peak - Dtype::FIRST;
        const float step = sum > 0 ? fmaxf(excess, 0.0f) : peak > NEGATIVE_INFINITY ? excess : 0.0f;
        const float rescale = sum > 0 ? Dtype::power(-step) : 1.0f;
        offset[m][r] -= step;
        row_sum[m][r] = 0.25f * sum * rescale;
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) exponents[m][n][2 * r] -= step, exponents[m][n][2 * r + 1] -= step;
#pragma unroll
        for (int d = 0; d < D_TILES; ++d) out[m][d][2 * r] *= rescale, out[m][d][2 * r + 1] *= rescale;
    }

    /// Exponents of row tile m, four of one fragment, to probabilities.
    __device__ __forceinline__ void to_probs(int m, float (&x)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = Dtype::power(x[i]);
            tile_sum[m][i / 2] += x[i];
        }
    }

    __device__ __forceinline__ void end_tile() {
        each_row([&](int m, int r) { row_sum[m][r] += tile_sum[m][r]; });
    }

    /// A row's state as it is kept in memory: its reference (-inf: none) and sum.
    __device__ __forceinline__ void load_row(int m, int r, float row_max, float sum) {
        offset[m][r] = sum > 0 ? -row_max : 0.0f;
        row_sum[m][r] = threadIdx.x % 4 == 0 ? sum : 0.0f;
    }

    /// All lanes of the quad must call.
    __device__ __forceinline__ void read_row(int m, int r, float& row_max, float& sum) const {
        sum = quad_sum(row_sum[m][r]);
        row_max = sum > 0 ? -offset[m][r] : NEGATIVE_INFINITY;
    }

    /// What to multiply the row's output by. `row_max`, in natural units, becomes what the row's sum is relative to, -inf if
    /// it has no weight. `sink`, in natural units, takes part in the sum alone. All lanes of the quad must call.
    __device__ __forceinline__ float finish(int m, int r, float sink, float& row_max, float& sum) const {
        sum = quad_sum(row_sum[m][r]);
        const float reference = sum == 0 ? NEGATIVE_INFINITY : -offset[m][r] * Dtype::NATURAL;
        row_max = fmaxf(reference, sink);
        // What is left of the rest where no sink takes part, without its exponentials.
        if (sink == NEGATIVE_INFINITY) return row_max == NEGATIVE_INFINITY ? 0.0f : normal_reciprocal(sum);
        if (row_max == NEGATIVE_INFINITY) return 0;
        const float weight = expf(reference - row_max);
        sum = sum * weight + expf(sink - row_max);
        return weight / sum;
    }
};

// ---- keep_all.cuh

/// No dropout. The interface is that of philox.cuh.
template <int M_TILES>
struct Dropout {
    __device__ __forceinline__ void begin_tile(int) {}
    __device__ __forceinline__ float scale() const { return 1; }

    template <class Probs, class... Place>
    __device__ __forceinline__ void drop(Probs&, Place...) {}
};

// ---- stretches.cuh

/// Where the rows (or keys) of a tile stand: a tile is a stretch of SIZE positions. See patches.cuh for the other way.
///
/// The tiles of a sequence, laid out one after the other, are its slots; here slots are positions.
template <int SIZE, int WIDTH, int COLUMNS>
struct TileOrder {
    static constexpr int BLOCK = SIZE;

    /// Slots between which the positions from, or up to, a given one stand.
    static __device__ __forceinline__ int begin(int position) { return position; }
    static __device__ __forceinline__ int end(int position) { return position; }

    /// The first position of the tile that begins with a slot, and the last that it has in a sequence of this length.
    static __device__ __forceinline__ int first(int slot) { return slot; }
    static __device__ __forceinline__ int last(int first, int length) { return min(first + BLOCK, length) - 1; }

    /// Whether all of the tile lies in the sequence.
    static __device__ __forceinline__ bool whole(int first, int length) { return first + BLOCK <= length; }

    /// The position of a slot of a tile, counted from the tile's first.
    static constexpr __device__ __forceinline__ int offset(int slot) { return slot; }

    /// The position of a slot of the sequence.
    static __device__ __forceinline__ int position(int slot) { return slot; }
};

// ---- grid.cuh

/// What a block works on: `q_len` rows of one sequence and head from `q_start` on, and its keys.
struct Work {
    int sequence;          // b
    int batch_index;       // into the batch axis of the tensors: 0 in a packed batch
    int head, split, q_block;
    int q_start, q_len, kv_start, kv_len;

    /// The row of `lse` (and of the partial results of one split) that belongs to q_idx.
    template <class Params>
    __device__ __forceinline__ long long row(const Params& params, int q_idx) const {
        return ((long long)batch_index * params.num_heads + head) * params.q_len + q_start + q_idx;
    }
};

/// Entry `index` of cumulative lengths; whatever they hold, no row outside 0..total is named.
__device__ __forceinline__ int sequence_start(const int* cu_seqlens, int index, int total) {
    return min(max(__ldg(cu_seqlens + index), 0), total);
}

/// Where a sequence starts and how long it is: all of the tensor in a dense batch.
__device__ __forceinline__ void find_span(int& start, int& length, const int* cu_seqlens, int sequence, int total) {
    int first = 0, last = total;
    if (cu_seqlens != nullptr) {
        first = sequence_start(cu_seqlens, sequence, total);
        last = sequence_start(cu_seqlens, sequence + 1, total);
    }
    start = uniform(first);
    length = uniform(max(last - first, 0));
}

/// The rows of the sequence that `work` names.
template <class AnyWork, class Params>
__device__ __forceinline__ void find_q_rows(AnyWork& work, const Params& params) {
    find_span(work.q_start, work.q_len, params.cu_seqlens_q, work.sequence, params.q_len);
}

/// The same of its rows and its keys.
template <class AnyWork, class Params>
__device__ __forceinline__ void find_rows(AnyWork& work, const Params& params) {
    find_q_rows(work, params);
    find_span(work.kv_start, work.kv_len, params.cu_seqlens_kv, work.sequence, params.kv_len);
}

/// blockIdx.x, read anew each time: what is decoded from it before and after a loop takes no registers in between.
__device__ __forceinline__ int block_index() {
    int index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
}

/// In a packed batch, which sequence owns a block of rows, or of keys: `block` then counts within it. Each entry of
/// cu_seqlens counts for `rows_each` rows. Sequence s has the blocks from its first row / BLOCK + s on, which is at least one
/// for each BLOCK of its rows; those to spare have block * BLOCK >= its length.
template <int BLOCK>
__device__ __forceinline__ void find_sequence(int& sequence, int& block, const int* cu_seqlens, int total, int batch,
                                              int rows_each = 1) {
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

template <int BLOCK_Q, class Params>
__device__ __forceinline__ void find_sequence(Work& work, const Params& params, int rows_each = 1) {
    find_sequence<BLOCK_Q>(work.sequence, work.q_block, params.cu_seqlens_q, params.q_len, params.batch, rows_each);
}

/// Which head, split and rows block `index` of queries is, among those of `heads` heads in each sequence, each of whose queries is
/// `rows_each` rows. The heads of one section, whose keys and values fit the L2 cache, go together; among them the last rows
/// go first: a causal mask gives them the most keys, so that short blocks fill the end. SPLITS: whether there may be several.
template <int BLOCK_Q, bool SPLITS = true, class Params>
__device__ __forceinline__ Work find_queries(const Params& params, int index, int heads, int rows_each) {
    const auto splits = [&] { return SPLITS ? params.splits : 1; };
    const int all_heads = (params.cu_seqlens_q == nullptr ? params.batch : 1) * heads * splits();  // splits share keys too
    const int section = index / (params.section * params.q_blocks), first = section * params.section;
    const int here = min(params.section, all_heads - first);
    index -= first * params.q_blocks;
    Work work;
    work.q_block = params.q_blocks - 1 - index / here;
    const int head = first + index % here;
    work.split = head % splits();
    work.head = head / splits() % heads;
    work.sequence = work.batch_index = head / splits() / heads;
    find_sequence<BLOCK_Q>(work, params, rows_each);
    return work;
}

/// The work of this block in the q_outer grid.
template <int BLOCK_Q, class Params>
__device__ __forceinline__ Work find_work(const Params& params, int heads, int rows_each) {
    Work work = find_queries<BLOCK_Q>(params, block_index(), heads, rows_each);
    work.q_block = uniform(work.q_block);
    work.split = uniform(work.split);
    work.head = uniform(work.head);
    work.sequence = uniform(work.sequence);
    work.batch_index = uniform(work.batch_index);
    find_rows(work, params);
    return work;
}

/// The work of this block in the kv_outer grid: one block for each head of each sequence.
template <class Params>
__device__ __forceinline__ Work find_head(const Params& params) {
    Work work;
    work.q_block = work.split = 0;
    work.head = uniform(blockIdx.x % params.num_heads);
    work.sequence = uniform(blockIdx.x / params.num_heads);
    work.batch_index = params.cu_seqlens_q == nullptr ? work.sequence : 0;
    find_rows(work, params);
    return work;
}

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

// ---- head_rows.cuh

/// The rows of a tile of Q: those of one query head, where `Order` says. See group_rows.cuh for the other way.
template <class Order>
struct QueryRows {
    const Work& work;
    int first, last;  // q_idx

    /// The work of this block in the q_outer grid.
    template <class Params>
    static __device__ __forceinline__ Work find_work(const Params& params) {
        return ::find_work<Order::BLOCK>(params, params.num_heads, 1);
    }

    __device__ __forceinline__ QueryRows(const Work& work, int first)
        : work(work), first(first), last(Order::last(first, work.q_len)) {}

    template <class Params>
    __device__ __forceinline__ QueryRows(const Params& params, const Work& work)
        : QueryRows(work, Order::first(work.q_block * Order::BLOCK)) {}

    __device__ __forceinline__ bool exist() const { return (unsigned)first < (unsigned)work.q_len; }

    __device__ __forceinline__ bool holds(int slot) const { return Order::offset(slot) < work.q_len - first; }

    __device__ __forceinline__ int head() const { return work.head; }

    template <class Params>
    __device__ __forceinline__ int kv_head(const Params& params) const {
        return work.head / (params.num_heads / params.num_kv_heads);
    }

    /// Where the rows stand in a tensor with these strides, in elements.
    template <class Element>
    __device__ __forceinline__ RowPlaces<Element, Order> places(Element* tensor, long long batch_stride, long long head_stride,
                                                                long long row_stride) const {
        Element* target = tensor + work.batch_index * batch_stride + work.head * head_stride +
                          (work.q_start + (long long)first) * row_stride;
        return {target, row_stride, work.q_len - first};
    }
};

// ---- kept.cuh

/// What a block knows of itself, in registers. See parked_rows.cuh for the other way.
template <class T>
__device__ __forceinline__ T parked(const T& x) {
    return x;
}

__device__ __forceinline__ int lane_of_values() { return threadIdx.x % 32; }
__device__ __forceinline__ int lane_of_tests() { return (int)threadIdx.x % 32; }

// ---- kept_rows.cuh

/// What a lane knows of its rows. They are made anew wherever they are used: kept in between, they would take registers from
/// the products.
template <class Order, int M_TILES>
struct LaneRows {
    int q_first, q_last;  // of the block
    int slot;             // this warp's first

    __device__ __forceinline__ LaneRows(const QueryRows<Order>& rows, int slot)
        : q_first(rows.first), q_last(rows.last), slot(slot) {}

    __device__ __forceinline__ int q_idx(int m, int r) const {
        const int first = opaque(q_first + Order::offset(slot + threadIdx.x % 32 / 4));
        return min(first + Order::offset(16 * m + 8 * r), q_last);
    }

    /// Of the warp, where a tile is a stretch.
    __device__ __forceinline__ int first() const { return min(opaque(q_first + slot), q_last); }
    __device__ __forceinline__ int last() const { return min(opaque(q_first + slot) + 16 * M_TILES - 1, q_last); }
};

// ---- key_bits.cuh

// Sets of a tile's keys as bits, 32 keys of a lane at a time: bit 2 n + side stands for the position n * STEP + side * SIDE,
// counted from the lane's first (the accumulator layout of mma_16bit.cuh, and where its columns stand).

/// How many of the lane's keys are among `positions` that begin with the lane's first; not cut off at 32.
template <int STEP = 8, int SIDE = 1>
__device__ __forceinline__ int lane_keys(int positions) {
    const unsigned count = max(positions, 0);
    return (count + STEP - 1) / STEP + (count + STEP - 1 - SIDE) / STEP;
}

/// Those among the first `positions`.
template <int STEP = 8, int SIDE = 1>
__device__ __forceinline__ unsigned bits_below(int positions) {
    return __funnelshift_lc(~0u, 0u, lane_keys<STEP, SIDE>(positions));
}

/// Those whose place in a period is below `limit`, at most PERIOD; `place` is that of the lane's first key.
template <int PERIOD, int PERIODS>
__device__ __forceinline__ unsigned remainder_bits(int place, int limit) {
    unsigned bits = bits_below(limit - place);
#pragma unroll
    for (int start = PERIOD; start < PERIODS * PERIOD; start += PERIOD)
        bits |= bits_below(start + limit - place) & ~bits_below(start - place);
    return bits;
}

/// What holds for the lane's first two keys holds for all.
__device__ __forceinline__ unsigned repeated_bits(bool first, bool second) {
    return (first ? 0x55555555u : 0u) | (second ? 0xaaaaaaaau : 0u);
}

/// All or none.
__device__ __forceinline__ unsigned row_bits(bool holds) { return holds ? ~0u : 0u; }

// ---- rotation.cuh

/// Moves the first STEP column tiles behind the others.
template <int STEP, class Word, int N_TILES, int WORDS>
__device__ __forceinline__ void rotate_columns(Word (&tiles)[N_TILES][WORDS]) {
    Word first[STEP][WORDS];
    memcpy(first, tiles, sizeof(first));
#pragma unroll
    for (int i = 0; i < WORDS * (N_TILES - STEP); ++i) tiles[i / WORDS][i % WORDS] = tiles[i / WORDS + STEP][i % WORDS];
    memcpy(tiles[N_TILES - STEP], first, sizeof(first));
}

// ---- scores.cuh

/// Replaces each score x of the warp's part of a tile by visit(m, r, column, x): row tile m, half r (the accumulator layout
/// of mma_16bit.cuh), `column` counted from the tile's first. Rows vary fastest, so that what depends on the column
/// alone is computed once. Where visits are long, STEP column tiles are a round of a loop: always the first ones, as
/// registers can't be counted off, with the others moved up after each round.
template <int STEP, int M_TILES, int N_TILES, class Visit>
__device__ __forceinline__ void each_score(float (&scores)[M_TILES][N_TILES][4], Visit visit) {
    auto round = [&](int column) {
#pragma unroll
        for (int n = 0; n < STEP; ++n)
#pragma unroll
            for (int side = 0; side < 2; ++side)
#pragma unroll
                for (int row = 0; row < 2 * M_TILES; ++row) {
                    float& x = scores[row / 2][n][row % 2 * 2 + side];
                    x = visit(row / 2, row % 2, column + 8 * n + side, x);
                }
    };
    const int lane_column = threadIdx.x % 4 * 2;
    if constexpr (STEP == N_TILES) {
        round(lane_column);
    } else {
        static_assert(N_TILES % STEP == 0, "all rounds are alike");
#pragma unroll 1
        for (int first = 0; first < N_TILES; first += STEP) {
            round(lane_column + 8 * first);
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) rotate_columns<STEP>(scores[m]);
        }
    }
}

/// Those of the 32 positions that the lane holds from `key` on (key_bits.cuh) that are among the first `keys` of the tile.
template <class KvOrder>
__device__ __forceinline__ unsigned bits_inside(unsigned bits, int key, int keys) {
    const int beyond = max(32 - lane_keys<KvOrder::offset(8), KvOrder::offset(1)>(keys - key), 0);
    return __funnelshift_rc(__funnelshift_lc(0u, bits, beyond), 0u, beyond);
}

/// Masks what the bits leave out: those of each row and group of 32 positions that the lane holds.
template <int M_TILES, int N_TILES, int GROUPS>
__device__ __forceinline__ void mask_scores(float (&scores)[M_TILES][N_TILES][4], const unsigned (&kept)[M_TILES][2][GROUPS],
                                            float masked) {
#pragma unroll
    for (int row = 0; row < 2 * M_TILES; ++row)
#pragma unroll
        for (int i = 0; i < 2 * N_TILES; ++i) {
            float& x = scores[row / 2][i / 2][row % 2 * 2 + i % 2];
            x = kept[row / 2][row % 2][i / 32] >> i % 32 & 1 ? x : masked;
        }
}

// ---- pair_tests.cuh

/// What of a mask is tested, where it is tested pair by pair, each by the lane that holds it. See shared_tests.cuh for the
/// other way.
template <class KvOrder, int M_TILES, int N_TILES>
struct Tests {
    template <class Row, class Test>
    __device__ __forceinline__ Tests(const Row (&)[M_TILES][2], int, Test) {}

    /// Nothing is known as bits.
    __device__ __forceinline__ unsigned bits(int, int, int) const { return ~0u; }
};

// ---- tile_kind.cuh

// What a tile holds: no kept pair, anything, only kept pairs.
enum TileKind { EMPTY, PARTIAL, FULL };

// ---- tiles.cuh

/// A tile of keys: its first kv_idx and what the mask keeps of it. EMPTY: there is none.
struct Tile {
    int kv_first;
    TileKind kind;
};

/// The keys that a block of queries has to look at, as slots (see stretches.cuh): [begin, end), of which [full_begin, full_end)
/// are kept by all rows.
struct TileRange {
    int begin, full_begin, full_end, end;

    /// What it keeps of the tile that begins with this slot.
    template <int BLOCK>
    __device__ __forceinline__ TileKind kind(int slot) const {
        const bool meets = (slot < end) & (slot + BLOCK > begin), full = (slot >= full_begin) & (slot + BLOCK <= full_end);
        return (TileKind)(meets * (PARTIAL + full));
    }
};

/// The same, from a multiple of BLOCK on.
template <int BLOCK>
__device__ __forceinline__ TileRange aligned(TileRange range) {
    range.begin = range.begin / BLOCK * BLOCK;
    return range;
}

/// One of `splits` equal shares of the range, in whole tiles.
template <int BLOCK_KV>
__device__ __forceinline__ TileRange share(TileRange range, int split, int splits) {
    const int first = range.begin / BLOCK_KV, tiles = max((range.end + BLOCK_KV - 1) / BLOCK_KV - first, 0);
    const int size = (tiles + splits - 1) / splits;
    range.begin = max(range.begin, (first + split * size) * BLOCK_KV);
    range.end = min(range.end, (first + (split + 1) * size) * BLOCK_KV);
    return range;
}

/// What is kept of a tile that the loop bounds leave open. A tile that reaches beyond the last key is never FULL.
template <class Order, class KindOf>
__device__ __forceinline__ TileKind classify(const TileRange& range, int slot, int kv_len, KindOf& kind_of) {
    if (slot >= range.full_begin && slot + Order::BLOCK <= range.full_end) return FULL;
    const int kv_first = Order::first(slot);
    const TileKind kind = kind_of(kv_first, Order::last(kv_first, kv_len));
    return kind == FULL && !Order::whole(kv_first, kv_len) ? PARTIAL : kind;
}

/// All tiles of a range in ascending order, from its first key on, where nothing is to be passed over. The interface is that
/// of LiveTiles.
template <class Order, bool CLASSIFIES, class KindOf>
struct AllTiles {
    static constexpr int BLOCK_KV = Order::BLOCK;

    const TileRange& range;
    int next;

    __device__ __forceinline__ AllTiles(const TileRange& range, int, KindOf&)
        : range(range), next(range.begin) {}

    __device__ __forceinline__ Tile advance() {
        const int kv_first = next;
        next += BLOCK_KV;
        return {kv_first, kv_first >= range.end ? EMPTY : next <= range.full_end ? FULL : PARTIAL};
    }
};

/// The live tiles of a range, in ascending order from its first key on, 32 at a time as bits. The bounds give the bits by arithmetic; with
/// CLASSIFIES, each lane of the warp asks `kind_of` about one of the tiles that they leave open. EMPTY tiles are passed
/// over, and what follows the last tile is EMPTY.
template <class Order, bool CLASSIFIES, class KindOf>
struct LiveTiles {
    static constexpr int BLOCK_KV = Order::BLOCK;

    const TileRange& range;
    KindOf& kind_of;
    int kv_len;
    int next;                     // the first slot that isn't classified
    unsigned live = 0, full = 0;  // of the 32 tiles before it; those handed out are no longer live

    __device__ __forceinline__ LiveTiles(const TileRange& range, int kv_len, KindOf& kind_of)
        : range(range), kind_of(kind_of), kv_len(kv_len), next(range.begin) {}

    __device__ __forceinline__ Tile advance() {
        while (live == 0) {
            if (next >= range.end) return {0, EMPTY};
            live = tiles_up_to(range.end + BLOCK_KV - 1);
            // A split may end before the full range does.
            full = live & tiles_up_to(range.full_end) & ~tiles_up_to(range.full_begin + BLOCK_KV - 1);
            if (CLASSIFIES) classify_open();
            next += 32 * BLOCK_KV;
        }
        const int bit = __ffs(live) - 1;
        live &= live - 1;
        return {Order::first(next + (bit - 32) * BLOCK_KV), full >> bit & 1 ? FULL : PARTIAL};
    }

private:
    /// Those of the next 32 tiles that end at or before kv_end.
    __device__ __forceinline__ unsigned tiles_up_to(int kv_end) const {
        const int keys = kv_end - next;
        const unsigned tiles = (unsigned)keys / BLOCK_KV;
        return keys <= 0 ? 0 : tiles < 32 ? (1u << tiles) - 1 : ~0u;  // no max(): it isn't a uniform instruction
    }

    __device__ __forceinline__ void classify_open() {
        const int lane = threadIdx.x % 32, kv_first = Order::first(next + lane * BLOCK_KV);
        TileKind kind = full >> lane & 1 ? FULL : EMPTY;
        if ((live & ~full) >> lane & 1) kind = kind_of(kv_first, Order::last(kv_first, kv_len));
        live = __ballot_sync(~0u, kind != EMPTY);
        full = __ballot_sync(~0u, kind == FULL && Order::whole(kv_first, kv_len));
    }
};

// ---- load.cuh

// Elements of the inputs. They don't change while a kernel runs, so loads take the read-only path, and the compiler may
// merge and move them.

__device__ __forceinline__ bool load(const unsigned char* address) { return __ldg(address) != 0; }
__device__ __forceinline__ int load(const int* address) { return __ldg(address); }
__device__ __forceinline__ long long load(const long long* address) { return __ldg(address); }
__device__ __forceinline__ float load(const float* address) { return __ldg(address); }
__device__ __forceinline__ float load(const fp16* address) { return to_float(fp16{__ldg(&address->bits)}); }
__device__ __forceinline__ float load(const bf16* address) { return to_float(bf16{__ldg(&address->bits)}); }

// `load`, or 0 where `inside` is false: one predicated instruction, no branch, and nothing is read.
__device__ __forceinline__ bool load_if(bool inside, const unsigned char* address) {
    unsigned value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.u8 %0, [%1]; }"
        : "+r"(value) : "l"(address), "r"((int)inside));
    return value != 0;
}

__device__ __forceinline__ int load_if(bool inside, const int* address) {
    int value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.b32 %0, [%1]; }"
        : "+r"(value) : "l"(address), "r"((int)inside));
    return value;
}

__device__ __forceinline__ long long load_if(bool inside, const long long* address) {
    long long value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.b64 %0, [%1]; }"
        : "+l"(value) : "l"(address), "r"((int)inside));
    return value;
}

__device__ __forceinline__ float load_if(bool inside, const float* address) {
    float value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.f32 %0, [%1]; }"
        : "+f"(value) : "l"(address), "r"((int)inside));
    return value;
}

template <class Half>  // fp16 or bf16
__device__ __forceinline__ float load_if(bool inside, const Half* address) {
    unsigned short value = 0;
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.b16 %0, [%1]; }"
        : "+h"(value) : "l"(address), "r"((int)inside));
    return to_float(Half{value});
}

// A scalar input: given by address (so that CUDA graphs see its present value) or by value.
template <class Element, class Value>
__device__ __forceinline__ auto scalar(const Element* address, Value value) -> decltype(load(address)) {
    return address != nullptr ? load(address) : value;
}

__device__ __forceinline__ bool in_range(int index, int size) { return (unsigned)index < (unsigned)size; }
__device__ __forceinline__ bool in_range(long long index, int size) {
    return (unsigned long long)index < (unsigned long long)size;
}

using Element = Dtype::Element;
using QOrder = TileOrder<BLOCK_Q, 1, 1>;
using KvOrder = TileOrder<BLOCK_KV, 1, 1>;

using Rows = QueryRows<QOrder>;
using Scores = float[M_TILES][N_TILES][4];
using Out = float[M_TILES][D_TILES][4];

// ---------------------------------------------------------------- paged

struct Params {
    const bf16 *q, *k, *v;
    bf16 *out;
    float *lse, *partial_out, *row_max, *row_sum;
    const int *cu_seqlens_q, *cu_seqlens_kv;
    long long q_stride_batch, q_stride_head, q_stride_row, k_stride_batch;
    long long k_stride_head, k_stride_row, v_stride_batch, v_stride_head;
    long long v_stride_row, out_stride_batch, out_stride_head, out_stride_row;
    uint2 *tile_lists;
    const int *logical_page;
    long long logical_page_stride0, logical_page_stride1;
    const int *length;
    long long length_stride0;
    int batch, num_heads, num_kv_heads, q_len;
    int kv_len, q_blocks, splits, section;
    int list_batch, list_heads, list_words, list_parts;
    float scale;
    int logical_page_size0, logical_page_size1;
    int length_size0;
};

struct Context {
    int b, h, kv_h;
    int q_len, kv_len;  // of this sequence
    int q_start, kv_start;  // its first rows in a packed batch, 0 in a dense one
    float scale;
    long long difference_2;
    int length;  // length[b]
};

__device__ __forceinline__ Context make_context(
    const Params& params, int b, int h, int kv_h, int q_len, int kv_len, int q_start, int kv_start) {
    Context ctx = {b, h, kv_h, q_len, kv_len, q_start, kv_start, params.scale};
#line 16 "specs/paged.attn"
    ctx.length = load(params.length + ctx.b * params.length_stride0);
#line 1049 "tile_lists_paged_bf16_d128_sm_80.cu"
    ctx.difference_2 = (long long)ctx.length - ctx.q_len;
    return ctx;
}

struct Row {
    int q_idx;
    long long difference;
};

__device__ __forceinline__ Row make_row(const Params& params, const Context& ctx, int q_idx) {
    Row row = {q_idx};
#line 16 "specs/paged.attn"
    row.difference = (long long)row.q_idx + ctx.length - ctx.q_len;
#line 1063 "tile_lists_paged_bf16_d128_sm_80.cu"
    return row;
}

// let own_page = logical_page[b, kv_idx // page]
// let position = own_page * page + kv_idx % page
// keep if own_page >= 0
// keep if position <= q_idx + length[b] - q_len
__device__ __forceinline__ bool keep(
    const Params& params, const Context& ctx, const Row& row, int kv_idx) {
#line 12 "specs/paged.attn"
    const int quotient = kv_idx / 64;
#line 12 "specs/paged.attn"
    const long long product = quotient * params.logical_page_stride1;
#line 12 "specs/paged.attn"
    const int* logical_page_address = params.logical_page + ctx.b * params.logical_page_stride0 +
        product;
#line 12 "specs/paged.attn"
    const int own_page = load_if(quotient < params.logical_page_size1, logical_page_address);
#line 15 "specs/paged.attn"
    const bool keep_1 = own_page >= 0;
#line 13 "specs/paged.attn"
    const long long position = (long long)own_page * 64 + kv_idx % 64;
#line 16 "specs/paged.attn"
    const bool keep_2 = position <= row.difference;
#line 1088 "tile_lists_paged_bf16_d128_sm_80.cu"
    return keep_1 & keep_2;
}

// The keys that matter to the rows q_first..q_last: all kept pairs lie in [kv_begin, kv_end), and all pairs in
// [full_begin, full_end) are kept.
struct KvBounds {
    int kv_begin, full_begin, full_end, kv_end;
};

__device__ __forceinline__ KvBounds kv_bounds(
    const Params& params, const Context& ctx, int q_first, int q_last) {
    const int kv_begin = 0;
    const int full_begin = 0;
    const int full_end = 0;
    const int kv_end = ctx.kv_len;
    return {kv_begin, full_begin, full_end, kv_end};
}

// What the tile q_first..q_last x kv_first..kv_last holds, at most.
__device__ __forceinline__ TileKind tile_kind(
    const Params& params, const Context& ctx, int q_first, int q_last, int kv_first, int kv_last) {
    const int quotient = kv_first / 64;
    const int* logical_page_base = params.logical_page + ctx.b * params.logical_page_stride0;
    const int* logical_page_address = logical_page_base + quotient * params.logical_page_stride1;
    const int logical_page_quotient = load_if(quotient < params.logical_page_size1,
        logical_page_address);
    const int quotient_2 = kv_last / 64;
    const int* logical_page_address_2 = logical_page_base + quotient_2 *
        params.logical_page_stride1;
    const int logical_page_quotient_2 = load_if(quotient_2 < params.logical_page_size1,
        logical_page_address_2);
    const int larger = max(logical_page_quotient, logical_page_quotient_2);
    const int smaller = min(logical_page_quotient, logical_page_quotient_2);
    const bool same = quotient == quotient_2;
    const long long sum = (long long)smaller * 64 + (same ? kv_first % 64 : 0);
    const bool any_kept = (larger >= 0) & (sum <= q_last + ctx.difference_2);
    const long long sum_2 = (long long)larger * 64 + (same ? kv_last % 64 : 63);
    const bool all_kept = (smaller >= 0) & (sum_2 <= q_first + ctx.difference_2);
    return !any_kept ? EMPTY : all_kept ? FULL : PARTIAL;
}

// ---------------------------------------------------------------- a block of queries

/// A block of queries as one of its warps sees it, and what the variant asks of its rows.
struct QueryBlock {
    const Params& params;
    const Context& context;
    int q_first, q_last;  // of the block
    int warp_row;         // this warp's first slot (see stretches.cuh) of the block
    LaneRows<QOrder, M_TILES> lane_rows;
    float magnitude = 1;  // of the scale, whose sign is in the Q tile
    Dropout<M_TILES> dropout;
    __device__ __forceinline__ QueryBlock(const Params& params, const Context& context, const Rows& rows)
        : params(params), context(context), q_first(rows.first), q_last(rows.last),
          warp_row(threadIdx.x / 32 * WARP_ROWS), lane_rows(rows, warp_row) {
    }

    /// As far as `range` and `kind` go, the rows in `count` slots from `first` on, or the last one if there are none.
    __device__ __forceinline__ QueryBlock part(int first, int count) const {
        QueryBlock rows = *this;
        rows.q_first = min(q_first + QOrder::offset(first), q_last);
        rows.q_last = min(rows.q_first + QOrder::offset(count - 1), q_last);
        return rows;
    }

    /// The keys that some row keeps, among those of an order. What the bounds don't decide, `kind` does.
    __device__ __forceinline__ TileRange range(const KvOrder& order = {}) const {
        TileRange range = {0, 0, 0, context.kv_len};
        const KvBounds bounds = kv_bounds(params, context, q_first, q_last);
        range = {order.begin(uniform(bounds.kv_begin)), uniform(bounds.full_begin), uniform(bounds.full_end),
                 order.end(uniform(bounds.kv_end))};
        return range;
    }

    __device__ __forceinline__ TileKind kind(int kv_first, int kv_last) const {
        TileKind kind = PARTIAL;
        kind = tile_kind(params, context, opaque(q_first), opaque(q_last), kv_first, kv_last);
        return kind;
    }

    /// A row of the lane.
    __device__ __forceinline__ Row row(int m, int r) const {
        return make_row(params, context, lane_rows.q_idx(m, r));
    }

    __device__ __forceinline__ void make_rows(Row (&rows)[M_TILES][2]) const {
#pragma unroll
        for (int i = 0; i < 2 * M_TILES; ++i) rows[i / 2][i % 2] = row(i / 2, i % 2);
    }

    /// What the score lines make of a product.
    __device__ __forceinline__ float modified(const Row& row, int kv_idx, float score) const {
        return score;
    }

    /// The logit that takes part in the normaliser of a row alone, in natural units.
    __device__ __forceinline__ float sink(int m, int r) const {
        float logit = NEGATIVE_INFINITY;
        return logit;
    }

    /// What of the mask must be tested for each pair.
    __device__ __forceinline__ bool keeps(const Row& row, int kv_idx) const {
        bool kept = true;
        kept = keep(params, context, row, kv_idx);
        return kept;
    }

    /// And the rest of it, for all keys that the lane holds from kv_idx on (key_bits.cuh).
    __device__ __forceinline__ unsigned kept_bits(const Row& row, int kv_idx) const {
        unsigned bits = ~0u;
        return bits;
    }
};

/// The score lines of a tile, all of which is kept, pair by pair. The interface is that of whole_tile_form.cu.j2.
struct WholeTile {
    Tile tile;

    __device__ __forceinline__ void prepare(const QueryBlock&, const Tile& tile) { this->tile = tile; }
    __device__ __forceinline__ bool serves(const QueryBlock&, const Scores&) const { return true; }

    __device__ __forceinline__ void to_exponents(const QueryBlock& block, const Normalizer<M_TILES>& normalizer,
                                                 Scores& scores) const {
        Row rows[M_TILES][2];
        block.make_rows(rows);
        each_score<SCORE_STEP>(scores, [&](int m, int r, int column, float x) {
            return normalizer.exponent(m, r, block.modified(rows[m][r], tile.kv_first + KvOrder::offset(column), x));
        });
    }
};
/// What is kept of a tile, but for tests of pairs: bits, which need no scores. As in key_bits.cuh, for each row of the lane.
struct TileMask {
    static constexpr int GROUPS = (N_TILES + 15) / 16;

    unsigned kept[M_TILES][2][GROUPS];

    __device__ __forceinline__ void prepare(const QueryBlock& block, int kv_first) {
        Row rows[M_TILES][2];
        block.make_rows(rows);
        const int keys = block.context.kv_len - kv_first;
        const Tests<KvOrder, M_TILES, N_TILES> tests(rows, keys, [&](const Row& row, int key) {
            return block.keeps(row, kv_first + key);
        });
#pragma unroll
        for (int i = 0; i < 2 * M_TILES * GROUPS; ++i) {
            const int m = i / GROUPS / 2, r = i / GROUPS % 2, group = i % GROUPS;
            const int key = KvOrder::offset(threadIdx.x % 4 * 2 + 128 * group);
            const unsigned bits = block.kept_bits(block.row(m, r), kv_first + key) & tests.bits(m, r, group);
            kept[m][r][group] = bits_inside<KvOrder>(bits, key, keys);
        }
    }

    /// Masks scores, or exponents; pairs are tested for STEP column tiles at once.
    template <int STEP = N_TILES>
    __device__ __forceinline__ void apply(const QueryBlock& block, int kv_first, Scores& scores) const {
        const float masked = Normalizer<M_TILES>::masked();
        mask_scores(scores, kept, masked);
        Row rows[M_TILES][2];
        block.make_rows(rows);
        const int last = block.context.kv_len - kv_first - 1;
        each_score<STEP>(scores, [&](int m, int r, int column, float x) {
            return block.keeps(rows[m][r], kv_first + min(KvOrder::offset(column), last)) ? x : masked;
        });
    }
};
/// The products of a tile to scores, but for the mask.
__device__ __forceinline__ void modify(const QueryBlock& block, int kv_first, Scores& scores) {
}
using OutColumns = ColumnsInPairs;  // of accumulators

/// What is known of the warp's rows when all keys are done.
struct Finished {
    float factor[M_TILES][2];  // what makes the output of an accumulator
    // Of the lane's own rows (output.cuh): l relative to m, in natural units; -inf and 0: no weight.
    float row_max[OWN_ROWS<M_TILES>], row_sum[OWN_ROWS<M_TILES>];

    /// `sink(m, r)`: the logit that takes part in the normaliser of a row alone; -inf, if none does.
    template <class Sink>
    __device__ __forceinline__ Finished(const Normalizer<M_TILES>& normalizer, Sink sink, float dropout_scale) {
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) {
            const int m = row / 2, r = row % 2;
            float of_row[2];
            factor[m][r] = normalizer.finish(m, r, sink(m, r), of_row[0], of_row[1]) * dropout_scale;
            if (row % 4 == 0 || own_row() == row % 4) row_max[row / 4] = of_row[0], row_sum[row / 4] = of_row[1];
        }
    }

    /// Where the rows of a block stand in an array like lse: of fp32, `width` of them a row.
    static __device__ __forceinline__ auto results(const Params& params, const Rows& rows, float* array, int width) {
        return rows.places(array, (long long)params.num_heads * params.q_len * width, (long long)params.q_len * width, width);
    }

    /// Stores the warp's rows of a block, and their lse if it is asked for. `out` is lost.
    __device__ __forceinline__ void store(const Params& params, const Rows& rows, int warp_row, Out& out) const {
        const auto target = rows.places(params.out, params.out_stride_batch, params.out_stride_head, params.out_stride_row);
        store_rows<Dtype, VALUE_HEAD_DIM, OutColumns>(target, warp_row, out, factor);
        if (params.lse != nullptr)
            store_row_values<M_TILES>(results(params, rows, params.lse, 1), warp_row,
                                      [&](int own) { return row_max[own] + logf(row_sum[own]); });
    }
};

// ---- tile_lists.cuh

// Lists of live tiles: for each block of queries, or each of GROUPS groups of its rows, a word of bits for those of 32 tiles of
// keys that are live, and one for those that are FULL; then those of the next 32 tiles. A pre-pass makes them, kernels walk them.

/// Where the list of a group begins. Blocks of a packed batch are counted as in its grid.
template <int BLOCK_Q, int GROUPS, class Params>
__device__ __forceinline__ uint2* tile_list(const Params& params, const Work& work, int group) {
    const int sequence = params.list_batch > 1 ? work.sequence : 0, head = params.list_heads > 1 ? work.head : 0;
    const int first = params.cu_seqlens_q == nullptr ? 0 : work.q_start / BLOCK_Q + work.sequence;
    const long long list = ((long long)sequence * params.list_heads + head) * params.q_blocks + first + work.q_block;
    return params.tile_lists + (list * GROUPS + group) * params.list_words;
}

/// Makes one of `parts` equal parts of a list. The lanes of the warp test a tile each.
template <class Order, class KindOf>
__device__ __forceinline__ void make_tile_list(uint2* list, const TileRange& all, int part, int parts, int kv_len,
                                               KindOf& kind_of) {
    constexpr int BLOCK = Order::BLOCK;
    const TileRange range = share<32 * BLOCK>(all, part, parts);
    const int lane = threadIdx.x % 32;
    for (int word = range.begin / (32 * BLOCK); word * 32 * BLOCK < range.end; ++word) {
        const int slot = (32 * word + lane) * BLOCK;
        TileKind kind = EMPTY;
        if (slot + BLOCK > range.begin && slot < range.end) kind = classify<Order>(range, slot, kv_len, kind_of);
        const unsigned live = __ballot_sync(~0u, kind != EMPTY), full = __ballot_sync(~0u, kind == FULL);
        if (lane == 0) list[word] = make_uint2(live, full);
    }
}

/// A word of a list, without the tiles outside [first, end).
__device__ __forceinline__ uint2 listed_word(const uint2* list, int index, int first, int end) {
    const int begin = first - 32 * index, last = end - 32 * index;
    if (index < 0 || begin >= 32 || last <= 0) return make_uint2(0, 0);
    uint2 tiles = __ldg(list + index);
    if (begin > 0) tiles.x &= ~0u << begin;
    if (last < 32) tiles.x &= ~(~0u << last);
    return tiles;
}

/// The live tiles of a list that lie in a range, in ascending order; what follows the last is EMPTY. Each lane of the warp
/// looks at 32 tiles, so 1024 EMPTY ones are passed over at once.
template <class Order>
struct ListedTiles {
    const uint2* list;
    int first, end;               // of the range, in tiles: a split's share begins and ends anywhere
    int word;                     // the next to be looked at
    int base = 0;                 // the first of the 32 tiles in hand
    unsigned live = 0, full = 0;  // of these; those handed out are no longer live

    __device__ __forceinline__ ListedTiles(const TileRange& range, const uint2* list)
        : list(list), first(range.begin / Order::BLOCK), end((range.end + Order::BLOCK - 1) / Order::BLOCK),
          word(first < end ? first / 32 : end) {}

    __device__ __forceinline__ Tile advance() {
        while (live == 0) {
            if (32 * word >= end) return {0, EMPTY};
            look();
        }
        const int bit = __ffs(live) - 1;
        live &= live - 1;
        return {Order::first((base + bit) * Order::BLOCK), full >> bit & 1 ? FULL : PARTIAL};
    }

private:
    /// The next 32 tiles of which some are live, if there are any among those that the lanes look at.
    __device__ __forceinline__ void look() {
        const uint2 own = listed_word(list, word + threadIdx.x % 32, first, end);
        const unsigned some = __ballot_sync(~0u, own.x != 0);
        const int source = some == 0 ? 31 : __ffs(some) - 1;
        live = uniform((int)__shfl_sync(~0u, own.x, source));
        full = uniform((int)__shfl_sync(~0u, own.y, source));
        base = 32 * (word + source);
        word += source + 1;
    }
};

constexpr int LIST_WARPS = 128 / 32;
constexpr int GROUPS = 1, GROUP_ROWS = BLOCK_Q / GROUPS;  // of a block's rows, with a list each

/// The live tiles of each group of queries, before the kernel that goes over them: once for all heads that share a mask. A
/// warp makes a list at a time, or a part of one where there are more warps than lists.
extern "C" __global__ void __launch_bounds__(32 * LIST_WARPS) tile_lists_paged(const __grid_constant__ Params params) {
    const int blocks = params.list_batch * params.list_heads * params.q_blocks, items = blocks * GROUPS * params.list_parts;
    for (int item = blockIdx.x * LIST_WARPS + threadIdx.x / 32; item < items; item += gridDim.x * LIST_WARPS) {
        const int group = item / params.list_parts % GROUPS, index = item / params.list_parts / GROUPS;
        Work work;
        work.q_block = index % params.q_blocks;
        work.split = 0;
        work.head = index / params.q_blocks % params.list_heads;
        work.sequence = work.batch_index = index / params.q_blocks / params.list_heads;
        find_sequence<BLOCK_Q>(work, params);
        find_rows(work, params);
        const Rows rows(params, work);
        // One of those that a packed batch has to spare.
        if (!rows.exist() || !rows.holds(group * GROUP_ROWS)) continue;
        const int kv_head = work.head / (params.num_heads / params.num_kv_heads);
        const Context context = make_context(params, work.sequence, work.head, kv_head, work.q_len, work.kv_len,
                                             work.q_start, work.kv_start);
        const QueryBlock block = QueryBlock(params, context, rows).part(group * GROUP_ROWS, GROUP_ROWS);
        const TileRange range = block.range();
        auto kind_of = [&](int kv_first, int kv_last) { return block.kind(kv_first, kv_last); };
        make_tile_list<KvOrder>(tile_list<BLOCK_Q, GROUPS>(params, work, group), range, item % params.list_parts, params.list_parts,
                                work.kv_len, kind_of);
    }
}
