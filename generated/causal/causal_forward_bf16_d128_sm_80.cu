// causal, forward pass: bf16, head dim 128, for sm_80.
// Written by attncc 0.2.0 from specs/causal.attn (sha256 f8341f755b9dc744). Do not edit.
//
// Contents, by line:
//    48  sizes
//    62  leaf code: element.cuh 64, math.cuh 68, bf16.cuh 155, running_max.cuh 178, softmax_rows.cuh 205,
//        normalize_softmax.cuh 266, keep_all.cuh 303, tiles_1d.cuh 310, grid.cuh 331, output.cuh 442,
//        head_rows.cuh 518, in_registers.cuh 557, kept_rows.cuh 563, key_bits.cuh 577, rotation.cuh 592,
//        scores.cuh 602, tile_kind.cuh 646, tiles.cuh 650
//   716  causal: Params 718, Context 731, make_context 739, Row 744, make_row 748, keep_bits 757, KvBounds 765,
//        kv_bounds 769
//   778  a block of queries
//   890  leaf code, continued: lanes.cuh 892, addresses_recomputed.cuh 905, layout.cuh 919, load_matrices.cuh 975,
//        mma_16bit.cuh 986, copy.cuh 1078, words.cuh 1140, queries.cuh 1153
//  1167  one tile of attention
//  1195    FlashAttention-2, Algorithm 1, line 8: S = Q K^T. Beside it the next K or V is loaded, line 7.
//  1213    FlashAttention-2, Algorithm 1, line 9: m, where a row needs a new one; with it O is rescaled, line 10.
//  1221    FlashAttention-2, Algorithm 1, lines 9 and 10: P = exp(S - m), l += rowsum(P), O += P V.
//  1228  leaf code of the loop over tiles: kv_rows.cuh 1230, kv_stream.cuh 1249, load_rows.cuh 1342,
//        block_range.cuh 1363
//  1375  the kernel
//  1381    FlashAttention-2, Algorithm 1, lines 3 and 4: which rows this thread block has; load Q.
//  1418    FlashAttention-2, Algorithm 1, line 5: O = 0, l = 0, m = -inf.
//  1422    FlashAttention-2, Algorithm 1, lines 6 and 7: for each tile of K and V.
//  1437    FlashAttention-2, Algorithm 1, lines 12 and 13: O = O / l, lse = m + log(l).
//  1439    FlashAttention-2, Algorithm 1, lines 14 and 15: write O and lse.
//
// Causal attention, bottom-right aligned: with q_len < kv_len (a chunk of a longer sequence, decoding) the last query
// sees every key. For top-left alignment write `keep if causal_top_left()`.
//
// variant causal
//   keep if causal()
//
// schedule
//   family = portable, loop = q_outer, block_q = 128, block_kv = 48,
//   stages = 1, warps = 4, split_kv = 1, skip = auto
//
// tiles
//   kv_begin = 0
//   full_begin = 0
//   full_end = min(max((q_first + (q_offset + 1)), 0), kv_len)
//   kv_end = min(max((q_last + (q_offset + 1)), 0), kv_len)

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

// ---------------------------------------------------------------- sizes

constexpr int BLOCK_Q = 128, BLOCK_KV = 48, WARPS = 4;
[[maybe_unused]] constexpr int STAGES = 1;
[[maybe_unused]] constexpr int HEAD_DIM = 128, PADDED_HEAD_DIM = 128;
constexpr int VALUE_HEAD_DIM = 128, PADDED_VALUE_HEAD_DIM = 128;

[[maybe_unused]] constexpr int THREADS = 32 * WARPS;
constexpr int WARP_ROWS = BLOCK_Q / WARPS, M_TILES = WARP_ROWS / 16;  // the rows of a warp; in tiles of 16
[[maybe_unused]] constexpr int WARP_KEYS = 48;  // of a tile, that a warp works on at once
constexpr int N_TILES = WARP_KEYS / 8;             // of 8 columns each, the scores
[[maybe_unused]] constexpr int SCORE_STEP = 6;  // of which so many at once become scores
constexpr int D_TILES = PADDED_VALUE_HEAD_DIM / 8;  // and the output

// ---------------------------------------------------------------- leaf code

// ---- element.cuh
// 16-bit floats as raw bits: NVRTC has no cuda_fp16.h.
struct bf16 { unsigned short bits; };

// ---- math.cuh
#define NEGATIVE_INFINITY (-__int_as_float(0x7f800000))  // no literal without headers
[[maybe_unused]] constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/// 2^x: one instruction, 2 ulp, results below 2^-126 are 0. exp2f would spend three more on those.
DEVICE float exp2_flushed(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

DEVICE float fast_reciprocal(float x) {  // 1 ulp
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/// 1 / x where both are normal: what CUDA computes, without its branch for all others.
DEVICE float normal_reciprocal(float x) {
    const float result = fast_reciprocal(x);
    return fmaf(result, fmaf(-x, result, 1.0f), result);
}

/// How exponents become probabilities with 16-bit operands: powers of 2, UNIT of them in a natural unit. Where a row's
/// largest exponent begins, and how far it may grow: normalize_softmax.cuh.
struct PowersOfTwo {
    static constexpr float UNIT = LOG2_E, NATURAL = LN_2, FIRST = 0, GROWTH = 8;
    static DEVICE float power(float x) { return exp2_flushed(x); }

    /// What ldmatrix brings is multiplied in so many parts: 8 bits in two, in another dtype.
    static constexpr int PARTS = 1;
};

/// The largest of the four values that the lanes of a quad hold.
DEVICE float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

DEVICE float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/// x, which is the same in all lanes: kept once for the warp, and so is what is computed from it. Not to be called
/// under a condition: ptxas 13.0 may make the branch a predicate, and use its register too early.
DEVICE int uniform(int x) {
    int result;
    asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
    return result;
}

DEVICE float uniform_float(float x) { return __int_as_float(uniform(__float_as_int(x))); }

DEVICE long long uniform_long(long long x) {
    const unsigned low = uniform((int)x), high = uniform((int)(x >> 32));
    return (long long)((unsigned long long)high << 32 | low);
}

template <class T> DEVICE T* uniform_pointer(T* x) { return (T*)uniform_long((long long)x); }

/// x, so that the compiler doesn't compute ahead of a loop what depends on it, which takes registers from the loop.
DEVICE int opaque(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

DEVICE long long opaque_long(long long x) {
    asm volatile("" : "+l"(x));
    return x;
}

template <class T> DEVICE T* opaque_pointer(T* x) {
    asm volatile("" : "+l"(x));
    return x;
}

/// `uniform` of a whole struct of 32-bit words.
template <class T> DEVICE T uniform_struct(const T& x) {
    int words[sizeof(T) / 4];
    memcpy(words, &x, sizeof(T));
    for (int& word : words) word = uniform(word);
    T result;
    memcpy(&result, words, sizeof(T));
    return result;
}

// ---- bf16.cuh
struct Dtype : PowersOfTwo {
    using Element = bf16;
    static constexpr unsigned SIGN_BITS = 0x80008000;
    static constexpr int WORDS = 1;  // of 32 bits, for two neighbouring columns

    static DEVICE unsigned pack(float low, float high) {
        unsigned word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }

    static DEVICE void words(unsigned (&word)[1], float x, float y) { word[0] = pack(x, y); }

    /// sum += a b
    static DEVICE void mma(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

// ---- running_max.cuh
/// The running maximum of each row of a warp, which exponents are relative to. What derives from it says when it moves.
template <int M_TILES> struct RunningMax {
    float factor;              // exponent (see Dtype::power) in one unit of the scores; positive
    float offset[M_TILES][2];  // minus the maximum of each row, as an exponent

    DEVICE explicit RunningMax(float factor) : factor(factor) {}

    /// The score of a pair that isn't kept.
    static DEVICE float masked() { return NEGATIVE_INFINITY; }

    template <class Visit> static DEVICE void each_row(Visit visit) {
        UNROLL for (int row = 0; row < 2 * M_TILES; ++row) visit(row / 2, row % 2);
    }

    // What is added to a row's scores, as exponents; an exponent relative to the row's maximum.
    DEVICE float shift(int m, int r) const { return offset[m][r]; }
    DEVICE float exponent(int m, int r, float score) const { return fmaf(score, factor, shift(m, r)); }

    template <int N_TILES> DEVICE void to_exponents(float (&scores)[M_TILES][N_TILES][4]) const {
        UNROLL for (int i = 0; i < 4 * M_TILES * N_TILES; ++i) {
            float& x = scores[i / (4 * N_TILES)][i / 4 % N_TILES][i % 4];
            x = exponent(i / (4 * N_TILES), i % 4 / 2, x);
        }
    }
};

// ---- softmax_rows.cuh
/// The rows of a warp in the online softmax, but for how their maxima move: sums, probabilities, results.
template <int M_TILES> struct SoftmaxRows : RunningMax<M_TILES> {
    using Base = RunningMax<M_TILES>;
    using Base::offset, Base::each_row;

    float row_sum[M_TILES][2];   // of this lane's columns, relative to the maximum
    float tile_sum[M_TILES][2];  // the same, of the tile in hand

    /// `unit`: natural units in one unit of the scores; positive.
    DEVICE explicit SoftmaxRows(float unit) : Base(unit * Dtype::UNIT) {
        each_row([&](int m, int r) { offset[m][r] = row_sum[m][r] = 0; });
    }

    /// Whether the maxima are still valid for a tile's exponents. All lanes of the warp must agree on what follows.
    template <int N_TILES> DEVICE bool max_still_valid(const float (&exponents)[M_TILES][N_TILES][4]) const {
        // As ints, positive floats are in order and above all negative ones. Hopper compares three at once.
        int top[4] = {};
        UNROLL for (int m = 0; m < M_TILES; ++m)
            UNROLL for (int n = 0; n < N_TILES; n += 2)
                UNROLL for (int i = 0; i < 4; ++i) {
                    const float x = exponents[m][n][i], y = exponents[m][n + 1][i];
                    top[i] = max(max(top[i], __float_as_int(x)), __float_as_int(y));
                }
        const float peak = __int_as_float(max(max(top[0], top[1]), max(top[2], top[3])));
        float least_sum = row_sum[0][0];
        each_row([&](int m, int r) { least_sum = fminf(least_sum, row_sum[m][r]); });
        return (peak <= Dtype::GROWTH) & (least_sum > 0);  // false for NaN
    }

    DEVICE void begin_tile() {
        each_row([&](int m, int r) { tile_sum[m][r] = 0; });
    }

    /// Exponents of row tile m, four of one fragment, to probabilities.
    DEVICE void to_probs(int m, float (&x)[4]) {
        UNROLL for (int i = 0; i < 4; ++i) {
            x[i] = Dtype::power(x[i]);
            tile_sum[m][i / 2] += x[i];
        }
    }

    DEVICE void end_tile() {
        each_row([&](int m, int r) { row_sum[m][r] += tile_sum[m][r]; });
    }

    /// What to multiply the row's output by. `row_max` becomes what its sum is relative to, -inf if it has no weight;
    /// `sink` takes part in the sum alone: both in natural units. All lanes of the quad must call.
    DEVICE float finish(int m, int r, float sink, float& row_max, float& sum) const {
        sum = quad_sum(row_sum[m][r]);
        const float maximum = sum == 0 ? NEGATIVE_INFINITY : -offset[m][r] * Dtype::NATURAL;
        row_max = fmaxf(maximum, sink);
        // What is left of the rest where no sink takes part, without its exponentials.
        if (sink == NEGATIVE_INFINITY) return row_max == NEGATIVE_INFINITY ? 0.0f : normal_reciprocal(sum);
        if (row_max == NEGATIVE_INFINITY) return 0;
        const float weight = expf(maximum - row_max);
        sum = sum * weight + expf(sink - row_max);
        return weight / sum;
    }
};

// ---- normalize_softmax.cuh
/// Online softmax (Milakov and Gimelshein 2018; FlashAttention-2, Algorithm 1, lines 8 to 12) of the rows of a warp, with
/// one liberty that leaves the result exact: a stale maximum serves as well. So it moves only when an
/// exponent is above Dtype::GROWTH (then P would leave 2^8, in fp32 e^8), a rare branch that the warp takes as a whole, and
/// makes the largest Dtype::FIRST (0: P is 1). Without it no maximum crosses the quad, and neither sums nor outputs are rescaled.
template <int M_TILES> struct Normalizer : SoftmaxRows<M_TILES> {
    using Base = SoftmaxRows<M_TILES>;
    using Base::offset, Base::each_row, Base::row_sum, Base::max_still_valid;

    /// `unit`: natural units in one unit of the scores; positive.
    DEVICE explicit Normalizer(float unit) : Base(unit) {}

    /// Moves the maxima if need be. All lanes must call.
    template <int N_TILES, int D_TILES>
    DEVICE void settle(float (&exponents)[M_TILES][N_TILES][4], float (&out)[M_TILES][D_TILES][4]) {
        if (!__all_sync(~0u, max_still_valid(exponents))) each_row([&](int m, int r) { move(m, r, exponents, out); });
    }

    /// Makes the row's largest exponent so far FIRST. A row whose sum is 0 has none: it has met only scores of -inf.
    /// Each lane gets a share of the sum, so that its own part tells that there is a maximum.
    template <int N_TILES, int D_TILES>
    DEVICE void move(int m, int r, float (&exponents)[M_TILES][N_TILES][4], float (&out)[M_TILES][D_TILES][4]) {
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
        UNROLL for (int n = 0; n < N_TILES; ++n) exponents[m][n][2 * r] -= step, exponents[m][n][2 * r + 1] -= step;
        UNROLL for (int d = 0; d < D_TILES; ++d) out[m][d][2 * r] *= rescale, out[m][d][2 * r + 1] *= rescale;
    }
};

// ---- keep_all.cuh
/// No dropout. The interface is that of philox.cuh.
template <int M_TILES> struct Dropout {
    DEVICE void begin_tile(int) {}
    DEVICE float scale() const { return 1; }
};

// ---- tiles_1d.cuh
/// Where the rows (or keys) of a tile stand: SIZE positions in a row (1-D). The tiles of a sequence, laid out one after
/// the other, are its slots; here slots are positions. See tiles_2d.cuh for tiles of a grid.
template <int SIZE, int WIDTH, int COLUMNS> struct TileOrder {
    static constexpr int BLOCK = SIZE;

    /// Slots between which the positions from, or up to, a given one stand.
    static DEVICE int begin(int position) { return position; }
    static DEVICE int end(int position) { return position; }

    /// The first position of the tile that begins with a slot, and the last that it has in a sequence of this length.
    static DEVICE int first(int slot) { return slot; }
    static DEVICE int last(int first, int length) { return min(first + BLOCK, length) - 1; }

    /// Whether all of the tile lies in the sequence.
    static DEVICE bool whole(int first, int length) { return first + BLOCK <= length; }

    /// The position of a slot of a tile, counted from the tile's first.
    static constexpr DEVICE int offset(int slot) { return slot; }
};

// ---- grid.cuh
/// What a block works on: `q_len` rows of one sequence and head from `q_start` on, and its keys.
struct Work {
    int sequence;          // b
    int batch_index;       // into the batch axis of the tensors: 0 in a packed batch
    int head, split, q_block;
    int q_start, q_len, kv_start, kv_len;
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

/// The rows and the keys of the sequence that `work` names. In a cache, with room for more, `kv_lens` says how many.
template <class AnyWork, class Params> DEVICE void find_rows(AnyWork& work, const Params& params) {
    find_span(work, work.q_start, work.q_len, params.cu_seqlens_q, work.sequence, params.q_len);
    find_span(work, work.kv_start, work.kv_len, params.cu_seqlens_kv, work.sequence, params.kv_len);
    int length = work.kv_len;
    if (params.kv_lens != nullptr) length = min(max(__ldg(params.kv_lens + work.sequence), 0), length);
    work.kv_len = uniform(length);  // not in the branch: no value is agreed upon under a predicate
}

/// Where the keys of a sequence are on the batch axis of k and v: only in a packed batch there is none.
template <class AnyWork, class Params> DEVICE int kv_batch(const Params& params, const AnyWork& work) {
    return params.cu_seqlens_kv == nullptr ? work.sequence : 0;
}

/// 1, or NaN where `kv_lens` holds what is no length of the sequence: what its results are multiplied by.
template <class Params> DEVICE float length_holds(const Params& params, int sequence) {
    const bool holds = params.kv_lens == nullptr || (unsigned)__ldg(params.kv_lens + sequence) <= (unsigned)params.kv_len;
    return holds ? 1.0f : __int_as_float(0x7fffffff);
}

/// q_pos - q_idx of the sequence: what the call says; else its last query is at its last key.
template <class AnyWork, class Params> DEVICE int query_offset(const Params& params, const AnyWork& work) {
    constexpr int NOT_GIVEN = 0, A_NUMBER = 1, OF_SEQUENCES = 2, MAX_LENGTH = (1 << 30) - (1 << 17);
    const int form = params.q_offset_form;
    int offset = params.q_offset;
    if (form > A_NUMBER) offset = __ldg(params.q_offsets + (form == OF_SEQUENCES ? work.sequence : 0));
    offset = min(max(offset, -MAX_LENGTH), MAX_LENGTH - work.q_len);
    return form == NOT_GIVEN ? work.kv_len - work.q_len : offset;  // single lanes ask, too
}

/// blockIdx.x, read anew each time: what is decoded from it before and after a loop takes no registers in between.
DEVICE int block_index() {
    int index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
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

/// Which head, split and rows block `index` of queries is. A sequence has `heads` heads, and a query `rows_each` rows.
/// The heads of one swizzle, whose keys and values fit the L2 cache, go together; among them the last rows go first: a
/// causal mask gives them the most keys, so that short blocks fill the end. SPLITS: whether there may be several.
template <int BLOCK_Q, bool SPLITS = true, class Params>
DEVICE Work find_queries(const Params& params, int index, int heads, int rows_each) {
    const auto splits = [&] { return SPLITS ? params.splits : 1; };
    const int all_heads = (params.cu_seqlens_q == nullptr ? params.batch : 1) * heads * splits();  // splits share keys too
    const int swizzle = index / (params.head_swizzle * params.q_blocks), first = swizzle * params.head_swizzle;
    const int here = min(params.head_swizzle, all_heads - first);
    index -= first * params.q_blocks;
    Work work;
    work.q_block = params.q_blocks - 1 - index / here;
    const int head = first + index % here;
    work.split = head % splits();
    work.head = head / splits() % heads;
    work.sequence = work.batch_index = head / splits() / heads;
    find_sequence<BLOCK_Q>(work.sequence, work.q_block, params.cu_seqlens_q, params.q_len, params.batch, rows_each);
    return work;
}

/// The work of this block in the q_outer grid.
template <int BLOCK_Q, class Params> DEVICE Work find_work(const Params& params, int heads, int rows_each) {
    Work work = find_queries<BLOCK_Q>(params, block_index(), heads, rows_each);
    work.q_block = uniform(work.q_block);
    work.split = uniform(work.split);
    work.head = uniform(work.head);
    work.sequence = uniform(work.sequence);
    work.batch_index = uniform(work.batch_index);
    find_rows(work, params);
    return work;
}

// ---- output.cuh
/// How the lanes of a quad store the 16 columns of two fragments, of which each holds two neighbours of both. Columns
/// of 16 bits go in fours: lanes of a pair swap halves of the fragments, so that each stores four columns of one at
/// once. In fp32 the quad's pairs are 32 bytes in a row, a whole sector, as they stand.
struct ColumnsInPairs {
    template <class Stored> static DEVICE int first(int lane) {
        return Stored::WORDS == 1 ? lane % 4 / 2 * 4 + lane % 2 * 8 : lane % 4 * 2;
    }

    /// `target`: where the lane's first column goes; of those from it on, `columns` exist.
    template <class Stored>
    static DEVICE void store(typename Stored::Element* target, const float (&x)[2][2], int columns, [[maybe_unused]] int lane) {
        if constexpr (Stored::WORDS == 1) {
            const bool odd = lane % 2;
            unsigned low[1], high[1];
            Stored::words(low, x[0][0], x[0][1]);
            Stored::words(high, x[1][0], x[1][1]);
            const unsigned other = __shfl_xor_sync(~0u, odd ? low[0] : high[0], 1);
            const unsigned packed[2] = {odd ? other : low[0], odd ? high[0] : other};
            if (columns > 0) *(uint2*)target = make_uint2(packed[0], packed[1]);
        } else {
            UNROLL for (int half = 0; half < 2; ++half) {
                unsigned packed[2];
                Stored::words(packed, x[half][0], x[half][1]);
                if (columns > 8 * half) *(uint2*)(target + 8 * half) = make_uint2(packed[0], packed[1]);
            }
        }
    }
};

/// Where a tile's rows go: slot i to row `Order::offset(i)` from `target` on, if below `rows`. Strides are of elements.
template <class Element, class Order> struct RowPlaces {
    Element* target;
    long long stride;
    int rows;

    DEVICE bool holds(int slot) const { return Order::offset(slot) < rows; }
    DEVICE long long offset(int slot) const { return Order::offset(slot) * stride; }
};

/// Stores the warp's rows, M_TILES * 16 slots from `slot` on, where `places` says (multiples of 16 bytes); of their
/// columns the first COLUMNS (a multiple of 8). Row tile m, half r is multiplied by factor[m][r]. All lanes must call.
template <class Stored, int COLUMNS, class Columns = ColumnsInPairs, int M_TILES, int D_TILES, class Places>
DEVICE void store_rows(const Places& places, int slot, const float (&out)[M_TILES][D_TILES][4],
                       const float (&factor)[M_TILES][2], int lane = threadIdx.x % 32) {
    const int column = Columns::template first<Stored>(lane);
    UNROLL for (int row_pair = 0; row_pair < 2 * M_TILES; ++row_pair) {
        const int m = row_pair / 2, r = row_pair % 2, row = slot + 8 * row_pair + lane / 4;
        // Opaque, or they would be computed anew for each fragment.
        auto* address = places.target + opaque_long(places.offset(row) + column);
        const bool exists = places.holds(row);
        UNROLL for (int d = 0; d < D_TILES; d += 2) {
            float x[2][2];
            UNROLL for (int i = 0; i < 4; ++i) x[i / 2][i % 2] = out[m][d + i / 2][2 * r + i % 2] * factor[m][r];
            const int columns = 8 * d + 16 <= COLUMNS ? 16 : COLUMNS - 8 * d - column;
            Columns::template store<Stored>(address + 8 * d, x, exists ? columns : 0, lane);
        }
    }
}

/// How many of the 2 * M_TILES rows that the lanes of a quad share are one lane's own, where each is to be one lane's.
template <int M_TILES> constexpr int OWN_ROWS = (2 * M_TILES + 3) / 4;

/// Of these rows, in fours, each lane owns the one of this number.
DEVICE int own_row() { return threadIdx.x % 4; }

/// Stores one value for each of the warp's rows, as `store_rows` does: this lane those of its own rows.
template <int M_TILES, class Places, class Value>
DEVICE void store_row_values(const Places& places, int slot, Value value) {
    UNROLL for (int own = 0; own < OWN_ROWS<M_TILES>; ++own) {
        const float x = value(own);
        const int number = 4 * own + own_row(), row = slot + 8 * number + threadIdx.x % 32 / 4;
        if (number < 2 * M_TILES && places.holds(row)) places.target[places.offset(row)] = x;
    }
}

// ---- head_rows.cuh
/// The rows of a tile of Q: those of one query head, where `Order` says. See group_rows.cuh for the other way.
template <class Order> struct QueryRows {
    const Work& work;
    int first, last;  // q_idx

    /// The work of this block in the q_outer grid.
    template <class Params> static DEVICE Work find_work(const Params& params) {
        return ::find_work<Order::BLOCK>(params, params.num_heads, 1);
    }

    DEVICE QueryRows(const Work& work, int first) : work(work), first(first), last(Order::last(first, work.q_len)) {}

    template <class Params>
    DEVICE QueryRows(const Params& params, const Work& work)
        : QueryRows(work, Order::first(work.q_block * Order::BLOCK)) {}

    DEVICE bool exist() const { return (unsigned)first < (unsigned)work.q_len; }
    DEVICE bool holds(int slot) const { return Order::offset(slot) < work.q_len - first; }

    DEVICE int head() const { return work.head; }

    template <class Params> DEVICE int kv_head(const Params& params) const {
        return work.head / (params.num_heads / params.num_kv_heads);
    }

    /// The first slot of the calling warp's rows.
    template <int WARP_ROWS> DEVICE int warp_slot() const { return threadIdx.x / 32 * WARP_ROWS; }

    /// Where the rows stand in a tensor with these strides, in elements.
    template <class Element>
    DEVICE RowPlaces<Element, Order> places(Element* tensor, long long batch_stride, long long head_stride,
                                            long long row_stride) const {
        Element* target = tensor + work.batch_index * batch_stride + work.head * head_stride +
                          (work.q_start + (long long)first) * row_stride;
        return {target, row_stride, work.q_len - first};
    }
};

// ---- in_registers.cuh
/// What a block knows of itself stays in registers: nothing is spilled. See spilled_to_smem.cuh for the other way.
template <class T> DEVICE T spilled(const T& x) { return x; }

DEVICE int lane_of_values() { return threadIdx.x % 32; }

// ---- kept_rows.cuh
/// What a lane knows of its rows, made anew wherever they are used: kept, they would take registers from the products.
template <class Order, int M_TILES> struct LaneRows {
    int q_first, q_last;  // of the block
    int slot;             // this warp's first

    DEVICE LaneRows(const QueryRows<Order>& rows, int slot) : q_first(rows.first), q_last(rows.last), slot(slot) {}

    DEVICE int q_idx(int m, int r) const {
        const int first = opaque(q_first + Order::offset(slot + threadIdx.x % 32 / 4));
        return min(first + Order::offset(16 * m + 8 * r), q_last);
    }
};

// ---- key_bits.cuh
// Sets of a tile's keys as bits, 32 keys of a lane at a time: bit 2 n + side is for the position n * STEP + side *
// SIDE, counted from the lane's first (the accumulator layout of mma_16bit.cuh, and where its columns stand).

/// How many of the lane's keys are among `positions` that begin with the lane's first; not cut off at 32.
template <int STEP = 8, int SIDE = 1> DEVICE int lane_keys(int positions) {
    const unsigned count = max(positions, 0);
    return (count + STEP - 1) / STEP + (count + STEP - 1 - SIDE) / STEP;
}

/// Those among the first `positions`.
template <int STEP = 8, int SIDE = 1> DEVICE unsigned bits_below(int positions) {
    return __funnelshift_lc(~0u, 0u, lane_keys<STEP, SIDE>(positions));
}

// ---- rotation.cuh
/// Moves the first STEP column tiles behind the others.
template <int STEP, class Word, int N_TILES, int WORDS> DEVICE void rotate_columns(Word (&tiles)[N_TILES][WORDS]) {
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
DEVICE void each_score(float (&scores)[M_TILES][N_TILES][4], Visit visit) {
    auto round = [&](int column) {
        UNROLL for (int n = 0; n < STEP; ++n)
            UNROLL for (int side = 0; side < 2; ++side)
                UNROLL for (int row = 0; row < 2 * M_TILES; ++row) {
                    float& x = scores[row / 2][n][row % 2 * 2 + side];
                    x = visit(row / 2, row % 2, column + 8 * n + side, x);
                }
    };
    const int lane_column = threadIdx.x % 4 * 2;
    if constexpr (STEP == N_TILES) {
        round(lane_column);
    } else {
        static_assert(N_TILES % STEP == 0, "all rounds are alike");
        NO_UNROLL for (int first = 0; first < N_TILES; first += STEP) {
            round(lane_column + 8 * first);
            UNROLL for (int m = 0; m < M_TILES; ++m) rotate_columns<STEP>(scores[m]);
        }
    }
}

/// Of the 32 positions that the lane holds from `key` on (key_bits.cuh), those among the first `keys` of the tile.
template <class KvOrder> DEVICE unsigned bits_inside(unsigned bits, int key, int keys) {
    const int beyond = max(32 - lane_keys<KvOrder::offset(8), KvOrder::offset(1)>(keys - key), 0);
    return __funnelshift_rc(__funnelshift_lc(0u, bits, beyond), 0u, beyond);
}

/// Masks what the bits leave out: those of each row and group of 32 positions that the lane holds.
template <int M_TILES, int N_TILES, int GROUPS>
DEVICE void mask_scores(float (&scores)[M_TILES][N_TILES][4], const unsigned (&kept)[M_TILES][2][GROUPS],
                        float masked) {
    UNROLL for (int row = 0; row < 2 * M_TILES; ++row)
        UNROLL for (int i = 0; i < 2 * N_TILES; ++i) {
            float& x = scores[row / 2][i / 2][row % 2 * 2 + i % 2];
            x = kept[row / 2][row % 2][i / 32] >> i % 32 & 1 ? x : masked;
        }
}

// ---- tile_kind.cuh
// What a tile holds: no kept pair, anything, only kept pairs.
enum TileKind { EMPTY, PARTIAL, FULL };

// ---- tiles.cuh
/// A tile of keys: its first kv_idx and what the mask keeps of it. EMPTY: there is none.
struct Tile {
    int kv_first;
    TileKind kind;
};

/// The keys that a block of queries looks at, as slots (tiles_1d.cuh): [begin, end); full ones: [full_begin, full_end).
struct TileRange {
    int begin, full_begin, full_end, end;
};

/// The live tiles of a range, in ascending order from its first key on, 32 at a time as bits. The bounds give the bits by arithmetic; with
/// CLASSIFIES, each lane of the warp asks `kind_of` about one of the tiles that they leave open. EMPTY tiles are passed
/// over, and what follows the last tile is EMPTY.
template <class Order, bool CLASSIFIES, class KindOf> struct LiveTiles {
    static constexpr int BLOCK_KV = Order::BLOCK;

    const TileRange& range;
    KindOf& kind_of;
    int kv_len;
    int next;                     // the first slot that isn't classified
    unsigned live = 0, full = 0;  // of the 32 tiles before it; those handed out are no longer live

    DEVICE LiveTiles(const TileRange& range, int kv_len, KindOf& kind_of)
        : range(range), kind_of(kind_of), kv_len(kv_len), next(range.begin) {}

    DEVICE Tile advance() {
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
    DEVICE unsigned tiles_up_to(int kv_end) const {
        const int keys = kv_end - next;
        const unsigned tiles = (unsigned)keys / BLOCK_KV;
        return keys <= 0 ? 0 : tiles < 32 ? (1u << tiles) - 1 : ~0u;  // no max(): it isn't a uniform instruction
    }

    DEVICE void classify_open() {
        const int lane = threadIdx.x % 32, kv_first = Order::first(next + lane * BLOCK_KV);
        TileKind kind = full >> lane & 1 ? FULL : EMPTY;
        if ((live & ~full) >> lane & 1) kind = kind_of(kv_first, Order::last(kv_first, kv_len));
        live = __ballot_sync(~0u, kind != EMPTY);
        full = __ballot_sync(~0u, kind == FULL && Order::whole(kv_first, kv_len));
    }
};

using Element = Dtype::Element;
using QOrder = TileOrder<BLOCK_Q, 1, 1>;
using KvOrder = TileOrder<BLOCK_KV, 1, 1>;

using Rows = QueryRows<QOrder>;
using Scores = float[M_TILES][N_TILES][4];
using Out = float[M_TILES][D_TILES][4];

// ---------------------------------------------------------------- causal

struct Params {
    const bf16 *q, *k, *v;
    bf16 *out;
    float *lse, *partial_out, *row_max, *row_sum;
    const int *cu_seqlens_q, *cu_seqlens_kv, *kv_lens, *block_table, *q_offsets;
    long long q_stride_batch, q_stride_head, q_stride_row;
    long long k_stride_batch, k_stride_head, k_stride_row;
    long long v_stride_batch, v_stride_head, v_stride_row;
    long long out_stride_batch, out_stride_head, out_stride_row;
    int q_offset, q_offset_form, batch, num_heads, num_kv_heads, q_len, kv_len, q_blocks, splits, head_swizzle;
    float scale;
};

struct Context {
    int b, h, kv_h;
    int q_len, kv_len;  // of this sequence
    int q_start, kv_start;  // its first rows in a packed batch, 0 in a dense one
    int q_offset;  // q_pos - q_idx
    float scale;
};

template <class AnyWork> DEVICE Context make_context(const Params& params, const AnyWork& work, int h, int kv_h) {
    return {work.sequence, h, kv_h, work.q_len, work.kv_len, work.q_start, work.kv_start, query_offset(params, work),
        params.scale};
}

struct Row {
    int q_idx, q_pos;
};

DEVICE Row make_row(const Params& params, const Context& ctx, int q_idx) {
    Row row = {q_idx};
#line 8 "specs/causal.attn"
    row.q_pos = row.q_idx + ctx.q_offset;
#line 753 "causal_forward_bf16_d128_sm_80.cu"
    return row;
}

// keep if causal()
DEVICE unsigned keep_bits(const Params& params, const Context& ctx, const Row& row, int kv_idx) {
#line 8 "specs/causal.attn"
    return bits_below(row.q_pos + 1 - kv_idx);
#line 761 "causal_forward_bf16_d128_sm_80.cu"
}

// The keys that matter to the rows q_first..q_last: all kept pairs lie in [kv_begin, kv_end), and all pairs in
// [full_begin, full_end) are kept.
struct KvBounds {
    int kv_begin, full_begin, full_end, kv_end;
};

DEVICE KvBounds kv_bounds(const Params& params, const Context& ctx, int q_first, int q_last) {
    const int kv_begin = 0;
    const int full_begin = 0;
    const int sum = ctx.q_offset + 1;
    const int full_end = min(max(q_first + sum, 0), ctx.kv_len);
    const int kv_end = min(max(q_last + sum, 0), ctx.kv_len);
    return {kv_begin, full_begin, full_end, kv_end};
}

// ---------------------------------------------------------------- a block of queries

/// A block of queries as one of its warps sees it, and what the variant asks of its rows.
struct QueryBlock {
    const Params& params;
    const Context& context;
    int q_first, q_last;  // of the block
    int warp_row;         // this warp's first slot (see tiles_1d.cuh) of the block
    LaneRows<QOrder, M_TILES> lane_rows;
    float magnitude = 1;  // of the scale, whose sign is in the Q tile
    Dropout<M_TILES> dropout;
    DEVICE QueryBlock(const Params& params, const Context& context, const Rows& rows)
        : params(params), context(context), q_first(rows.first), q_last(rows.last),
          warp_row(rows.template warp_slot<WARP_ROWS>()), lane_rows(rows, warp_row) {}

    /// The keys that some row keeps. What bounds don't decide, `kind` does. OF_LANES: each lane may have other rows.
    template <bool OF_LANES = false> DEVICE TileRange range(const KvOrder& order = {}) const {
        const KvBounds bounds = kv_bounds(params, context, q_first, q_last);
        auto of_rows = [](int x) { return OF_LANES ? x : uniform(x); };
        return {order.begin(of_rows(bounds.kv_begin)), of_rows(bounds.full_begin), of_rows(bounds.full_end),
                order.end(of_rows(bounds.kv_end))};
    }

    DEVICE TileKind kind(int kv_first, int kv_last) const { return PARTIAL; }

    /// A row of the lane.
    DEVICE Row row(int m, int r) const { return make_row(params, context, lane_rows.q_idx(m, r)); }

    DEVICE void make_rows(Row (&rows)[M_TILES][2]) const {
        UNROLL for (int i = 0; i < 2 * M_TILES; ++i) rows[i / 2][i % 2] = row(i / 2, i % 2);
    }

    /// Natural units in one unit of the scores; score lines have made them natural.
    DEVICE float unit() const { return magnitude; }

    /// What the score lines make of a product.
    DEVICE float modified(const Row& row, int kv_idx, float score) const { return score; }

    /// The logit that takes part in the normaliser of a row alone, in natural units. `row_of()`: that row.
    template <class RowOf> DEVICE float sink_of(RowOf row_of) const { return NEGATIVE_INFINITY; }

    /// The same of a row of the lane.
    DEVICE float sink_at(int m, int r) const {
        return sink_of([&] { return row(m, r); });
    }
};

/// The score lines of a tile, all of which is kept, pair by pair. The interface is that of whole_tile_form.cu.j2.
struct WholeTile {
    Tile tile;

    DEVICE void prepare_scores(const QueryBlock&, const Tile& tile) { this->tile = tile; }
    DEVICE bool serves(const QueryBlock&, const Scores&) const { return true; }

    DEVICE void to_exponents(const QueryBlock& block, const Normalizer<M_TILES>& normalizer, Scores& scores) const {
        Row rows[M_TILES][2];
        block.make_rows(rows);
        each_score<SCORE_STEP>(scores, [&](int m, int r, int column, float x) {
            return normalizer.exponent(m, r, block.modified(rows[m][r], tile.kv_first + KvOrder::offset(column), x));
        });
    }
};
/// What is kept of a tile, but for tests of pairs: bits (key_bits.cuh) for each row of the lane, which need no scores.
struct TileMask {
    static constexpr int GROUPS = (N_TILES + 15) / 16;

    unsigned kept[M_TILES][2][GROUPS];

    DEVICE void prepare(const QueryBlock& block, int kv_first) {
        const int keys = block.context.kv_len - kv_first;
        Row rows[M_TILES][2];  // not read, but without them ptxas schedules some kernels in another way
        block.make_rows(rows);
        UNROLL for (int i = 0; i < 2 * M_TILES * GROUPS; ++i) {
            const int m = i / GROUPS / 2, r = i / GROUPS % 2, group = i % GROUPS;
            const int key = KvOrder::offset(threadIdx.x % 4 * 2 + 128 * group);
            const unsigned bits = keep_bits(block.params, block.context, block.row(m, r), kv_first + key);
            kept[m][r][group] = bits_inside<KvOrder>(bits, key, keys);
        }
    }

    /// Masks scores, or exponents; pairs are tested for STEP column tiles at once.
    template <int STEP = N_TILES> DEVICE void apply(const QueryBlock& block, int kv_first, Scores& scores) const {
        mask_scores(scores, kept, Normalizer<M_TILES>::masked());
    }
};
using OutColumns = ColumnsInPairs;  // of accumulators

/// What is known of the warp's rows when all keys are done.
struct Finished {
    float factor[M_TILES][2];  // what makes the output of an accumulator
    // Of the lane's own rows (output.cuh): l relative to m, in natural units; -inf and 0: no weight.
    float row_max[OWN_ROWS<M_TILES>], row_sum[OWN_ROWS<M_TILES>];

    /// `sink(m, r)`: the logit that takes part in a row's normaliser alone, or -inf. If `out_scale` is NaN, so is lse.
    template <class Sink> DEVICE Finished(const Normalizer<M_TILES>& normalizer, Sink sink, float out_scale) {
        UNROLL for (int row = 0; row < 2 * M_TILES; ++row) {
            const int m = row / 2, r = row % 2;
            float of_row[2];
            factor[m][r] = normalizer.finish(m, r, sink(m, r), of_row[0], of_row[1]) * out_scale;
            if (row % 4 == 0 || own_row() == row % 4) row_max[row / 4] = of_row[0] + 0 * out_scale, row_sum[row / 4] = of_row[1];
        }
    }

    /// Stores the warp's rows of a block, and their lse if it is asked for. `out` is lost.
    DEVICE void store(const Params& params, const Rows& rows, int warp_row, Out& out) const {
        const auto target = rows.places(params.out, params.out_stride_batch, params.out_stride_head, params.out_stride_row);
        store_rows<Dtype, VALUE_HEAD_DIM, OutColumns>(target, warp_row, out, factor);
        if (params.lse != nullptr)
            store_row_values<M_TILES>(rows.places(params.lse, (long long)params.num_heads * params.q_len, params.q_len, 1), warp_row,
                                      [&](int own) { return row_max[own] + logf(row_sum[own]); });
    }
};
// ---------------------------------------------------------------- leaf code, continued

// ---- lanes.cuh
// Where lanes read the fragments of tiles in shared memory (mma_16bit.cuh).

/// Of a tile of K.
template <class KTile> DEVICE typename KTile::Lane key_lane(unsigned keys, int lane) {
    return KTile::lane(keys, lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/// Of a tile of Q, from `first_row` on.
template <class QTile> DEVICE typename QTile::Lane query_lane(unsigned queries, int first_row, int lane) {
    return QTile::lane(queries, first_row + lane % 16, lane / 16);
}

// ---- addresses_recomputed.cuh
/// Where a lane reads Q, K and V, computed again at each use. See addresses_ahead.cuh for the other way.
template <class, int> struct FragmentAddresses {
    template <class QTile> DEVICE typename QTile::Lane query(unsigned queries, int first_row) const {
        return query_lane<QTile>(queries, first_row, threadIdx.x % 32);
    }

    template <class KTile> DEVICE typename KTile::Lane key(unsigned keys) const {
        return key_lane<KTile>(keys, threadIdx.x % 32);
    }

    DEVICE int values() const { return lane_of_values(); }
};

// ---- layout.cuh
// Tiles in shared memory: no padding, and an access of eight rows at one column meets all 32 banks.

DEVICE unsigned shared_address(const void* pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

/// A tile of ROW_COUNT rows (a multiple of 8) of BYTES_A_ROW bytes (a multiple of 32), cut by columns into panels: as
/// many of 128 bytes as fit, then one of 64, then one of 32. Within a panel rows follow each other, and the number of a
/// 16-byte chunk is XORed with the number of its 128-byte line, as far as the panel has chunks.
template <int ROW_COUNT, int BYTES_A_ROW> struct SharedTile {
    static constexpr int ROWS = ROW_COUNT, ROW_BYTES = BYTES_A_ROW, BYTES = ROWS * ROW_BYTES;
    static constexpr int CHUNKS = ROW_BYTES / 16;
    static constexpr int WIDE_END = CHUNKS / 8 * 8;                         // chunks in panels of 128 bytes
    static constexpr int HALF_END = WIDE_END + (CHUNKS - WIDE_END) / 4 * 4;  // and in the one of 64

    /// The address of a chunk is that of the row's chunk 0, XOR a constant, plus a constant for the panel and for whole
    /// groups of 8 rows. The part that isn't constant, for each width of panel; what isn't used costs nothing.
    struct Lane {
        unsigned wide, half, quarter;
    };

    /// Offset of a row's chunk within a panel of WIDTH bytes.
    template <int WIDTH> static DEVICE unsigned in_panel(unsigned row, unsigned chunk) {
        const unsigned line = row / (128 / WIDTH);
        return row * WIDTH + (chunk ^ line % (WIDTH / 16)) * 16;
    }

    /// Where a panel starts whose first chunk is `chunk`.
    static constexpr DEVICE unsigned panel(int chunk) { return chunk * 16 * ROWS; }

    /// `base` is the tile's address, a multiple of 128.
    static DEVICE Lane lane(unsigned base, int row, int chunk) {
        return {base + in_panel<128>(row, chunk), base + in_panel<64>(row, chunk), base + in_panel<32>(row, chunk)};
    }

    /// Address of chunk `chunk` XOR the lane's own, `row` rows below the lane's own: both constants. One of the two rows
    /// must be a multiple of 8.
    static DEVICE unsigned at(const Lane& lane, int row, int chunk) {
        if (chunk < WIDE_END) return (lane.wide ^ (chunk ^ row) % 8 * 16) + panel(chunk / 8 * 8) + row * 128;
        if (chunk < HALF_END) return (lane.half ^ (chunk ^ row / 2) % 4 * 16) + panel(WIDE_END) + row * 64;
        return (lane.quarter ^ (chunk ^ row / 4) % 2 * 16) + panel(HALF_END) + row * 32;
    }

    /// An address, and how far it is to those of 8, 16, 24, ... rows below, in bytes a row.
    struct Place {
        unsigned address;
        int row_bytes;
    };

    /// The place of a chunk, neither it nor the row constant.
    static DEVICE Place place(unsigned base, int row, int chunk) {
        if (chunk < WIDE_END) return {base + panel(chunk / 8 * 8) + in_panel<128>(row, chunk % 8), 128};
        if (chunk < HALF_END) return {base + panel(WIDE_END) + in_panel<64>(row, chunk - WIDE_END), 64};
        return {base + panel(HALF_END) + in_panel<32>(row, chunk - HALF_END), 32};
    }
};

// ---- load_matrices.cuh
DEVICE void load_matrices(unsigned (&x)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address));
}

DEVICE void load_matrices_transposed(unsigned (&x)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address));
}

// ---- mma_16bit.cuh
// The two products of attention on tensor cores: mma.m16n8k16, fp32 accumulators.
//
// Accumulators are x[m][n][i]: of the tile of 16 rows m and 8 columns n, a lane holds row lane/4 + 8*(i/2) and column
// 2*(lane%4) + i%2 for i in 0..3. Two neighbouring tiles of P are, packed pairwise, an A operand as they stand.

/// scores = Q K^T for all rows of the K tile; `read_queries(step, q)` gives the fragments of 16 columns of Q. Each K fragment
/// serves all M_TILES; `k_lane` is where the lane reads K. `overlapped(0)`, then `overlapped(1)`: what may run under the products,
/// once a tile. UNROLLED: of the steps, all but where it is seldom done: they compile for long.
template <class Dtype, class KTile, int UNROLLED = KTile::CHUNKS / 2, int M_TILES, int N_TILES, class ReadQueries, class Overlapped>
DEVICE void multiply_fragments_keys(float (&scores)[M_TILES][N_TILES][4], ReadQueries read_queries,
                                    const typename KTile::Lane& k_lane, Overlapped overlapped) {
    constexpr int STEPS = KTile::CHUNKS / 2 * Dtype::PARTS;
    UNROLL for (int i = 0; i < M_TILES * N_TILES * 4; ++i) scores[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] = 0;
#pragma unroll UNROLLED
    for (int step = 0; step < STEPS; ++step) {
        unsigned q[M_TILES][4];
        read_queries(step / Dtype::PARTS, q);
        UNROLL for (int n = 0; n < N_TILES; n += 2) {
            unsigned k[4];
            load_matrices(k, KTile::at(k_lane, 8 * n, 2 * (step / Dtype::PARTS)));
            UNROLL for (int m = 0; m < M_TILES; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) Dtype::mma(scores[m][n + half], q[m], k[2 * half], k[2 * half + 1]);
        }
        if (step == 0) overlapped(0);
        if (step == min(1, STEPS - 1)) overlapped(1);
    }
}

/// M_TILES * 16 rows of Q, of 16 columns.
template <class QTile, int M_TILES>
DEVICE void load_queries(unsigned (&q)[M_TILES][4], const typename QTile::Lane& q_lane, int step) {
    UNROLL for (int m = 0; m < M_TILES; ++m) load_matrices(q[m], QTile::at(q_lane, 16 * m, 2 * step));
}

/// A warp's rows of Q, which meet many tiles of keys: as many of their columns as REGISTERS hold are kept, the others are read
/// for each tile. `addresses` tells where a lane reads (addresses_recomputed.cuh, addresses_ahead.cuh).
template <class QTile, int M_TILES, int REGISTERS> struct QueryFragments {
    static constexpr int STEPS = QTile::CHUNKS / 2;
    static constexpr int ROOM = REGISTERS > 0 ? REGISTERS / (4 * M_TILES) : 0, KEPT = ROOM < STEPS ? ROOM : STEPS;

    unsigned queries;
    int first_row;
    unsigned kept[KEPT + 1][M_TILES][4];  // one more: no array is empty

    /// Q must have come.
    DEVICE QueryFragments(unsigned queries, int first_row) : queries(queries), first_row(first_row) {
#pragma unroll
        for (int step = 0; step < KEPT; ++step) load_queries<QTile>(kept[step], query_lane<QTile>(queries, first_row, threadIdx.x % 32), step);
    }

    template <class Dtype, class KTile, int N_TILES, class FragmentAddresses, class Overlapped>
    DEVICE void multiply(float (&scores)[M_TILES][N_TILES][4], const FragmentAddresses& addresses, unsigned keys,
                         Overlapped overlapped) const {
        auto read = [&](int step, unsigned(&q)[M_TILES][4]) {
            if (step < KEPT)
                memcpy(q, kept[step], sizeof(q));
            else
                load_queries<QTile>(q, addresses.template query<QTile>(queries, first_row), step);
        };
        multiply_fragments_keys<Dtype, KTile>(scores, read, addresses.template key<KTile>(keys), overlapped);
    }
};

/// out += P V. `to_probs(m, n, x)` turns the four scores of tile (m, n) into probabilities, just before they are packed,
/// so that their registers are free for the next; `dropout.drop(words, m, n)` then clears pairs of tiles n and n + 1.
template <class Dtype, class VTile, int M_TILES, int N_TILES, int D_TILES, class ToProbs, class Dropout>
DEVICE void multiply_probs_values(float (&out)[M_TILES][D_TILES][4], float (&scores)[M_TILES][N_TILES][4],
                                  unsigned values, ToProbs to_probs, Dropout& dropout, int lane = threadIdx.x % 32) {
    const auto v_lane = VTile::lane(values, lane % 16, lane / 16);
    UNROLL for (int n = 0; n < N_TILES; n += 2) {
        unsigned probs[M_TILES][4];
        UNROLL for (int m = 0; m < M_TILES; ++m) {
            UNROLL for (int half = 0; half < 2; ++half) {
                float(&x)[4] = scores[m][n + half];
                to_probs(m, x);
                probs[m][2 * half] = Dtype::pack(x[0], x[1]);
                probs[m][2 * half + 1] = Dtype::pack(x[2], x[3]);
            }
        }
        UNROLL for (int d = 0; d < D_TILES; d += 2) {
            unsigned v[4];
            load_matrices_transposed(v, VTile::at(v_lane, 8 * n, d));
            UNROLL for (int m = 0; m < M_TILES; ++m) {
                Dtype::mma(out[m][d], probs[m], v[0], v[1]);
                Dtype::mma(out[m][d + 1], probs[m], v[2], v[3]);
            }
        }
    }
}

// ---- copy.cuh
// Asynchronous copies from global to shared memory (cp.async, sm_80 and later).

DEVICE void copy_async(unsigned target, const void* source) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(source));
}

/// Copies 16 bytes, or writes zeros without reading where `exists` is false: the source may be any address then.
DEVICE void copy_async_or_zero(unsigned target, const void* source, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(exists ? 16 : 0));
}

/// Closes a group: the copies that this thread issued since the last one.
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;"); }

/// Waits until at most PENDING of this thread's latest groups are under way.
template <int PENDING> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

/// PANELS panels of WIDTH bytes, from chunk FIRST on: neighbouring threads take neighbouring chunks of a row.
template <class Tile, class Order, int THREADS, int VALID_BYTES, bool CHECKED, int WIDTH, int FIRST, int PANELS>
DEVICE void load_panels(unsigned tile, const char* source, long long row_bytes, int rows) {
    constexpr int CHUNKS = WIDTH / 16, STEP = THREADS / CHUNKS;
    const unsigned thread = opaque(threadIdx.x);
    const int thread_row = thread / CHUNKS, chunk = thread % CHUNKS;
    const char* address = source + Order::offset(thread_row) * row_bytes + (FIRST + chunk) * 16;
    const unsigned target = tile + Tile::panel(FIRST);
    const unsigned thread_target = target + Tile::template in_panel<WIDTH>(thread_row, chunk);
    UNROLL for (int start = 0; start < Tile::ROWS; start += STEP, address += Order::offset(STEP) * row_bytes) {
        const int row = thread_row + start;
        if (start + STEP > Tile::ROWS && row >= Tile::ROWS) break;
        // Offsets add up for whole groups of 8 rows, after which the swizzle repeats too.
        const bool inside = STEP % 8 == 0 ? Order::offset(thread_row) < rows - Order::offset(start) : Order::offset(row) < rows;
        const unsigned row_target =
            STEP % 8 == 0 ? thread_target + start * WIDTH : target + Tile::template in_panel<WIDTH>(row, chunk);
        UNROLL for (int panel = 0; panel < PANELS; ++panel) {
            const int first = FIRST + panel * CHUNKS;
            const bool whole = VALID_BYTES >= (first + CHUNKS) * 16;  // the panel holds no padding columns
            const unsigned chunk_target = row_target + Tile::panel(panel * CHUNKS);
            if (whole && !CHECKED) {
                copy_async(chunk_target, address + panel * WIDTH);
            } else {
                const bool exists = (whole || (first + chunk) * 16 < VALID_BYTES) & (!CHECKED || inside);
                copy_async_or_zero(chunk_target, address + panel * WIDTH, exists);
            }
        }
    }
}

template <class Tile, class Order, int THREADS, int VALID_BYTES, bool CHECKED>
DEVICE void load_columns(unsigned tile, const char* source, long long row_bytes, int rows) {
    constexpr int WIDE = Tile::WIDE_END, HALF = Tile::HALF_END;
    load_panels<Tile, Order, THREADS, VALID_BYTES, CHECKED, 128, 0, WIDE / 8>(tile, source, row_bytes, rows);
    load_panels<Tile, Order, THREADS, VALID_BYTES, CHECKED, 64, WIDE, (HALF - WIDE) / 4>(tile, source, row_bytes, rows);
    load_panels<Tile, Order, THREADS, VALID_BYTES, CHECKED, 32, HALF, (Tile::CHUNKS - HALF) / 2>(tile, source, row_bytes, rows);
}

/// Loads a tile without a branch, for code that runs under products. No rows at all make a tile of zeros.
template <class Tile, class Order, int THREADS, int VALID_BYTES>
DEVICE void load_tile_straight(unsigned tile, const char* source, long long row_bytes, int rows) {
    load_columns<Tile, Order, THREADS, VALID_BYTES, true>(tile, opaque_pointer(source), row_bytes, rows);
}

// ---- words.cuh
// Ordinary accesses to shared memory by address.

DEVICE unsigned load_word(unsigned address) {
    unsigned word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address));
    return word;
}

DEVICE void store_word(unsigned address, unsigned word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

// ---- queries.cuh
/// Moves the sign of `scale` into the Q tile, and zero too, so that scores need a positive factor: the one returned. The
/// tile may still be on its way; a barrier must follow before it is used.
template <class Dtype, class QTile, int THREADS> DEVICE float take_sign(unsigned queries, float scale) {
    if (!(scale <= 0)) return scale;
    copy_wait<0>();
    __syncthreads();
    NO_UNROLL for (int byte = threadIdx.x * 4; byte < QTile::BYTES; byte += THREADS * 4) {
        const unsigned word = load_word(queries + byte);
        store_word(queries + byte, scale == 0 ? 0 : word ^ Dtype::SIGN_BITS);
    }
    return scale == 0 ? 1 : -scale;
}

// ---------------------------------------------------------------- one tile of attention

using QTile = SharedTile<BLOCK_Q, PADDED_HEAD_DIM * sizeof(Element)>;
using KTile = SharedTile<WARP_KEYS, PADDED_HEAD_DIM * sizeof(Element)>;
using VTile = SharedTile<WARP_KEYS, PADDED_VALUE_HEAD_DIM * sizeof(Element)>;

// Blocks that a multiprocessor should hold; 0: as the compiler sees fit. With one m16 tile a warp, it holds MOST_RESIDENT, which
// hide what each waits for, if the accumulators and what goes with them leave room for that many: some of what the variant
// keeps of a block, too, where it is more than 32 words. For targets above sm_90 fp32 kernels take more registers.
constexpr int ACCUMULATORS = 4 * M_TILES * (N_TILES + D_TILES), CONTEXT_WORDS = sizeof(Context) / 4;
constexpr int OTHERS = sizeof(Element) == 2 ? 48 : __CUDA_ARCH__ > 900 ? 128 : 96;
constexpr int BLOCKS = 65536 / (THREADS * (ACCUMULATORS + OTHERS + (CONTEXT_WORDS > 32 ? CONTEXT_WORDS - 32 : 0)));
constexpr int MOST_RESIDENT = 3;
[[maybe_unused]] constexpr int MIN_BLOCKS = M_TILES > 1 ? 0 : BLOCKS > MOST_RESIDENT ? MOST_RESIDENT : BLOCKS;

// A multiprocessor reads shared memory for the tensor cores about as long as these multiply. So what two blocks leave of a
// thread's registers, besides those for all else, is for Q; three leave none.
using BlockQueries = QueryFragments<QTile, M_TILES, M_TILES == 1 && MIN_BLOCKS == 3 ? 0 : 255 - ACCUMULATORS - 88>;

using TileAddresses = FragmentAddresses<QTile, WARP_ROWS>;

/// S = Q K^T, score lines, mask, online softmax, O += P V.
/// `addresses`: where the lane reads. `load_ahead` runs under the first product (multiply_fragments_keys); `values_ready()` returns the
/// address of the V tile once it is in shared memory. One basic block but for what is rare: masks, and maxima that move.
template <class LoadAhead, class ValuesReady>
DEVICE void attend(QueryBlock& block, const Tile& tile, const BlockQueries& queries, const TileAddresses& addresses,
                   unsigned keys, LoadAhead load_ahead, ValuesReady values_ready, Normalizer<M_TILES>& normalizer,
                   Out& out) {
    // FlashAttention-2, Algorithm 1, line 8: S = Q K^T. Beside it the next K or V is loaded, line 7.
    Scores scores;
    queries.multiply<Dtype, KTile>(scores, addresses, keys, load_ahead);
    const unsigned values = values_ready();
    // The score lines and the mask, which the paper leaves out; then exponents relative to m.
    TileMask mask;
    bool masks = tile.kind != FULL;
    const bool whole = true;
    WholeTile form;
    if (whole) form.prepare_scores(block, tile);
    if (whole && form.serves(block, scores)) {
        form.to_exponents(block, normalizer, scores);
    } else {
        mask.prepare(block, tile.kv_first);
        mask.apply(block, tile.kv_first, scores);
        normalizer.to_exponents(scores);
        masks = false;
    }
    // FlashAttention-2, Algorithm 1, line 9: m, where a row needs a new one; with it O is rescaled, line 10.
    if (!__all_sync(~0u, !masks & normalizer.max_still_valid(scores))) {
        if (masks) {
            mask.prepare(block, tile.kv_first);
            mask.apply(block, tile.kv_first, scores);
        }
        normalizer.settle(scores, out);
    }
    // FlashAttention-2, Algorithm 1, lines 9 and 10: P = exp(S - m), l += rowsum(P), O += P V.
    normalizer.begin_tile();
    block.dropout.begin_tile(tile.kv_first);
    auto to_probs = [&](int m, float(&x)[4]) { normalizer.to_probs(m, x); };
    multiply_probs_values<Dtype, VTile>(out, scores, values, to_probs, block.dropout, addresses.values());
    normalizer.end_tile();
}
// ---------------------------------------------------------------- leaf code of the loop over tiles

// ---- kv_rows.cuh
/// The keys and values of one head of one sequence in global memory. Strides are in bytes. `load_kv_tile`: see kv_copies.cuh.
struct KvRows {
    const char *keys, *values;
    long long key_stride, value_stride;
    int kv_len;

    /// Starts to load a tile of which `count` rows exist.
    template <class Tile, class Order, int THREADS, int BYTES>
    DEVICE void load_keys(unsigned target, int first, int count) const {
        load_tile_straight<Tile, Order, THREADS, BYTES>(target, keys + first * key_stride, key_stride, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    DEVICE void load_values(unsigned target, int first, int count) const {
        load_tile_straight<Tile, Order, THREADS, BYTES>(target, values + first * value_stride, value_stride, count);
    }
};

// ---- kv_stream.cuh
/// The live tiles (see LiveTiles), loaded into a ring of STAGES buffers for K and for V while earlier ones are worked on. Nothing
/// of an EMPTY tile is read. All threads of the block must make the same calls. A tile begins with one basic block:
/// copies are without branches, and run under the products, as do the addresses that they take.
///
/// With one stage, V arrives under Q K^T and the next K under the softmax and P V (FlashAttention-2's order), which takes
/// two barriers a tile; with more, whole tiles are ahead of use, which takes one.
template <int STAGES, class Order, int THREADS, class KTile, class VTile, int KEY_BYTES, int VALUE_BYTES, class AnyRows, class Tiles>
struct KvStream {
    static constexpr int AHEAD = STAGES - 1, FIRST = STAGES == 1 ? 1 : AHEAD;  // tiles ahead, and at the start

    const AnyRows& rows;
    Tiles& tiles;
    unsigned key_buffers, value_buffers;
    int slot = 0;        // of the tile in hand
    Tile queue[STAGES];  // the tile in hand, and those ahead of it

    /// Starts to load the first tiles; their first group takes in the copies that the caller has issued before.
    DEVICE KvStream(const AnyRows& rows, Tiles& tiles, unsigned buffers)
        : rows(rows), tiles(tiles), key_buffers(buffers),
          value_buffers(buffers + STAGES * KTile::BYTES) {
        NO_UNROLL for (int i = 0; i < FIRST; ++i) {
            shift(FIRST);
            queue[FIRST - 1] = tiles.advance();
            load_keys(queue[FIRST - 1], i);
            if (STAGES > 1) load_values(queue[FIRST - 1], i);
            copy_commit();
        }
    }

    DEVICE bool live() const { return queue[0].kind != EMPTY; }
    DEVICE Tile tile() const { return queue[0]; }
    DEVICE unsigned keys() const { return key_buffers + slot * KTile::BYTES; }
    DEVICE unsigned values() const { return value_buffers + slot * VTile::BYTES; }

    /// Returns when the first tile, and what the caller had issued before it, is in shared memory.
    DEVICE void wait_first() const {
        copy_wait<STAGES == 1 ? 0 : STAGES - 2>();
        __syncthreads();
    }

    /// Returns when the keys of the tile in hand are in shared memory and all warps have left the tile before it.
    DEVICE void wait_keys() {
        if (STAGES > 1) queue[AHEAD] = tiles.advance();
        copy_wait<STAGES == 1 ? 0 : STAGES - 2>();
        __syncthreads();
    }

    /// Starts what is to be loaded next, in two parts, 0 and 1: under the products with the keys.
    DEVICE void load_ahead(int part) {
        const int free_slot = slot == 0 ? AHEAD : slot - 1;
        if (part == 0 && STAGES > 1) load_keys(queue[AHEAD], free_slot);
        if (part == 0) return;
        load_values(queue[AHEAD], free_slot);
        copy_commit();
    }

    /// Returns when the values of the tile in hand are there. With one stage, all warps have left its keys then.
    DEVICE void wait_values() {
        if (STAGES > 1) return;
        copy_wait<0>();
        __syncthreads();
        next = tiles.advance();
        load_keys(next, 0);
        copy_commit();
    }

    DEVICE void step() {
        if (STAGES == 1) queue[0] = next;
        shift(STAGES);
        slot = slot == AHEAD ? 0 : slot + 1;
    }

private:
    Tile next;  // with one stage: the tile whose keys are on their way

    DEVICE void shift(int count) {
        UNROLL for (int i = 1; i < count; ++i) queue[i - 1] = queue[i];
    }

    DEVICE void load_keys(const Tile& tile, int target) const {
        rows.template load_keys<KTile, Order, THREADS, KEY_BYTES>(key_buffers + target * KTile::BYTES, tile.kv_first,
                                                                  rows_of(tile));
    }

    DEVICE void load_values(const Tile& tile, int target) const {
        rows.template load_values<VTile, Order, THREADS, VALUE_BYTES>(value_buffers + target * VTile::BYTES, tile.kv_first,
                                                                      rows_of(tile));
    }

    DEVICE int rows_of(const Tile& tile) const { return tile.kind == EMPTY ? 0 : rows.kv_len - tile.kv_first; }
};

// ---- load_rows.cuh
// Tiles of Q: all THREADS threads take part in starting to load one. What doesn't exist becomes zeros.

/// Rows of one head. Nothing of a block runs before they are asked for, so their addresses are a step apart, as those of keys.
template <class QTile, int THREADS, int BYTES, class Element, class Order>
DEVICE void load_rows(unsigned tile, const RowPlaces<Element, Order>& places) {
    load_tile_straight<QTile, Order, THREADS, BYTES>(tile, (const char*)places.target, places.stride * (long long)sizeof(Element),
                                                     places.rows);
}

/// The first `rows` of a tile, whose places are anywhere, of few tiles that meet many keys: a short loop.
template <class QTile, int THREADS, int BYTES, class Places>
DEVICE void load_rows(unsigned tile, const Places& places, int rows) {
    NO_UNROLL for (int index = threadIdx.x; index < rows * QTile::CHUNKS; index += THREADS) {
        const int row = index / QTile::CHUNKS, chunk = index % QTile::CHUNKS;
        const bool exists = places.holds(row) && chunk * 16 < BYTES;
        const char* source = (const char*)(places.target + (exists ? places.offset(row) : 0)) + exists * chunk * 16;
        copy_async_or_zero(QTile::place(tile, row, chunk).address, source, exists);
    }
}

// ---- block_range.cuh
/// The keys that a block's rows look at, where its warps don't tell their own from others'. See warp_ranges.cuh.
template <int WARPS> struct Ranges {
    TileRange range;

    DEVICE explicit Ranges(const TileRange& range) : range(range) {}

    DEVICE TileRange all() const { return range; }

    template <int BLOCK> DEVICE Tile own(const Tile& tile, unsigned) const { return tile; }
};

// ---------------------------------------------------------------- the kernel

/// FlashAttention-2, Algorithm 1: a block owns BLOCK_Q rows of one head and goes over the keys that they keep.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    causal_forward(const __grid_constant__ Params params) {
    extern __shared__ __align__(1024) unsigned char shared[];
    // FlashAttention-2, Algorithm 1, lines 3 and 4: which rows this thread block has; load Q.
    // What a block is, and the keys that its rows look at.
    const Work& work = spilled(Rows::find_work(params));
    const Rows rows(params, work);
    if (!rows.exist()) return;
    const int kv_head = rows.kv_head(params);
    const Context& context = spilled(uniform_struct(make_context(params, work, rows.head(), kv_head)));
    QueryBlock block(params, context, rows);

    const unsigned queries = shared_address(shared);
    load_rows<QTile, THREADS, HEAD_DIM * sizeof(Element)>(
        queries, rows.places(params.q, params.q_stride_batch, params.q_stride_head, params.q_stride_row));

    const Ranges<WARPS> ranges(block.range());
    TileRange range = uniform_struct(ranges.all());
    // K and V, copied by all threads; the first tiles are asked for.
    // Where K and V are.
    const Element* k = params.k + kv_batch(params, work) * params.k_stride_batch + kv_head * params.k_stride_head +
                       work.kv_start * params.k_stride_row;
    const Element* v = params.v + kv_batch(params, work) * params.v_stride_batch + kv_head * params.v_stride_head +
                       work.kv_start * params.v_stride_row;
    // The loop of fp32 has no registers for strides, only uniform ones; nor has one whose warps know of their own.
    auto bytes = [](long long stride) {
        return (stride * (long long)sizeof(Element));
    };
    const KvRows kv = {(const char*)uniform_pointer(k), (const char*)uniform_pointer(v), bytes(params.k_stride_row), bytes(params.v_stride_row),
                       work.kv_len};
    auto kind_of = [&](int kv_first, int kv_last) { return block.kind(kv_first, kv_last); };
    LiveTiles< KvOrder, false, decltype(kind_of)> tiles(range, context.kv_len, kind_of);
    KvStream<STAGES, KvOrder, THREADS, KTile, VTile, HEAD_DIM * sizeof(Element), VALUE_HEAD_DIM * sizeof(Element), decltype(kv), decltype(tiles)>
        stream(kv, tiles, queries + QTile::BYTES);

    block.magnitude = uniform_float(take_sign<Dtype, QTile, THREADS>(queries, context.scale));

    stream.wait_first();  // and Q
    const BlockQueries q_fragments(queries, block.warp_row);

    // FlashAttention-2, Algorithm 1, line 5: O = 0, l = 0, m = -inf.
    Out out = {};
    Normalizer<M_TILES> normalizer(block.unit());

    // FlashAttention-2, Algorithm 1, lines 6 and 7: for each tile of K and V.
    for (; stream.live(); stream.step()) {
        const Tile tile = ranges.own<BLOCK_KV>(stream.tile(), threadIdx.x);
        stream.wait_keys();
        auto load_ahead = [&](int part) { stream.load_ahead(part); };
        auto values_ready = [&] {
            stream.wait_values();
            return stream.values();
        };
        attend(block, tile, q_fragments, TileAddresses(), stream.keys(), load_ahead, values_ready, normalizer, out);
    }
    // Decoded again, neither kept nor spilled, where the loop needs the registers.
    const Work done = Rows::find_work(params);
    const Rows finished_rows(params, done);
    auto sink = [&](int m, int r) { return done.split == 0 ? block.sink_at(m, r) : NEGATIVE_INFINITY; };
    // FlashAttention-2, Algorithm 1, lines 12 and 13: O = O / l, lse = m + log(l).
    const Finished finished(normalizer, sink, block.dropout.scale() * length_holds(params, done.sequence));
    // FlashAttention-2, Algorithm 1, lines 14 and 15: write O and lse.
    finished.store(params, finished_rows, block.warp_row, out);
}
