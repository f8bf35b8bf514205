// causal, forward pass: bf16, head dim 128, for sm_90a.
// Written by attncc 0.2.0 from specs/causal.attn (sha256 f8341f755b9dc744). Do not edit.
//
// Contents, by line:
//    58  sizes
//    71  leaf code: element.cuh 73, math.cuh 77, bf16.cuh 156, running_max.cuh 179, stale_max_softmax.cuh 206,
//        tiles_1d.cuh 303, grid.cuh 324, output.cuh 428, group_queries.cuh 504, key_bits.cuh 588, scores.cuh 603,
//        tile_kind.cuh 621, tiles.cuh 625
//   663  causal: Params 665, Context 680, make_context 688, Row 693, make_row 697, keep_bits 706, KvBounds 714,
//        kv_bounds 718
//   727  a block of queries
//   841  leaf code, continued: tile_scheduler.cuh 843, group_tiles.cuh 855, descending_tiles.cuh 877, layout.cuh 914,
//        load_matrices.cuh 936, warp_scores.cuh 942, barrier.cuh 964, words.cuh 1022, pipeline.cuh 1045, tma.cuh 1171,
//        tma_1d.cuh 1195, kv_in_rows.cuh 1204, tma_5d.cuh 1214, warpgroup.cuh 1232, queries_of_group.cuh 1259,
//        wgmma.cuh 1291, values_loaded.cuh 1344, finished.cuh 1362
//  1376  what the warps share
//  1414  the planner
//  1452  the producer
//  1473    FlashAttention-3, Algorithm 1, lines 4 and 5: load Q.
//  1563    FlashAttention-3, Algorithm 1, lines 6 to 10: for each tile, wait for a free stage, load K and V.
//  1590  queries times keys
//  1627  the consumers
//  1808    FlashAttention-3, Algorithm 2, lines 3 and 4: S = Q K^T of the first tile.
//  1812    FlashAttention-3, Algorithm 2, lines 5 and 6: m, P and l; K is released.
//  1821    FlashAttention-3, Algorithm 2, lines 7 to 9: for each further tile, S_next = Q K^T, not waited for.
//  1825    FlashAttention-3, Algorithm 2, lines 10 and 11: O += P V of the tile before, not waited for.
//  1828    FlashAttention-3, Algorithm 2, line 12: wait for S_next.
//  1830    FlashAttention-3, Algorithm 2, lines 13 and 14: m, P and l of S_next; wait for P V, then rescale O.
//  1833    FlashAttention-3, Algorithm 2, line 15: K and V are released.
//  1854    FlashAttention-3, Algorithm 2, lines 18 and 19: O += P V of the last tile.
//  1871    FlashAttention-3, Algorithm 2, line 2: O = 0, l = 0, m = -inf.
//  1887    FlashAttention-3, Algorithm 2, line 20: O = O / l, lse = m + log(l); write both.
//  1896  the kernel
//  1905    FlashAttention-3, Algorithm 1, line 1: the barriers of the ring of stages.
//  1915    FlashAttention-3, Algorithm 1, lines 2 and 3: the producer warpgroup gives registers away.
//  1927    FlashAttention-3, Algorithm 1, lines 11 and 12: the consumer warpgroups take them.
//
// Causal attention, bottom-right aligned: with q_len < kv_len (a chunk of a longer sequence, decoding) the last query
// sees every key. For top-left alignment write `keep if causal_top_left()`.
//
// variant causal
//   keep if causal()
//
// schedule
//   family = hopper, loop = q_outer, block_q = 128, block_kv = 128,
//   stages = 2, warps = 8, split_kv = auto, skip = auto
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

constexpr int BLOCK_Q = 128, BLOCK_KV = 128, WARPS = 8;
[[maybe_unused]] constexpr int STAGES = 2;
[[maybe_unused]] constexpr int HEAD_DIM = 128, PADDED_HEAD_DIM = 128;
constexpr int VALUE_HEAD_DIM = 128, PADDED_VALUE_HEAD_DIM = 128;

[[maybe_unused]] constexpr int THREADS = 32 * WARPS;
constexpr int WARP_ROWS = BLOCK_Q / WARPS, M_TILES = WARP_ROWS / 16;  // the rows of a warp; in tiles of 16
[[maybe_unused]] constexpr int WARP_KEYS = 128;  // of a tile, that a warp works on at once
constexpr int N_TILES = WARP_KEYS / 8;             // of 8 columns each, the scores
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

/// x, so that the compiler doesn't compute ahead of a loop what depends on it, which takes registers from the loop.
DEVICE int opaque(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

DEVICE long long opaque_long(long long x) {
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

/// threadIdx.x, read anew each time: kept, it and what is computed from it would take registers from a loop.
DEVICE int thread_index() {
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
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

// ---- stale_max_softmax.cuh
/// Online softmax (FlashAttention-2, Algorithm 1, lines 8 to 12) with stale maxima. Any number in place of a row's
/// maximum gives the same softmax. So where nothing is masked, exponentials subtract the maxima of earlier tiles, and
/// the tile's sum, needed anyway, tells whether that was safe. Where it wasn't, the caller computes the scores again.
template <int M_TILES> struct Normalizer : RunningMax<M_TILES> {
    using Base = RunningMax<M_TILES>;
    using Base::factor, Base::offset, Base::each_row;  // a row without keys so far has an infinite offset

    float row_sum[M_TILES][2] = {};  // of this lane's columns, relative to the maximum
    float tile_sum[M_TILES][2];      // the sums of that tile
    float rescale[M_TILES][2];       // what it makes of earlier sums and outputs

    /// `unit`: natural units in one unit of the scores; positive.
    DEVICE explicit Normalizer(float unit) : Base(unit * LOG2_E) {
        each_row([&](int m, int r) { offset[m][r] = -NEGATIVE_INFINITY; });
    }

    /// Whether all rows of the warp have met a key.
    DEVICE bool has_max() const {
        float highest = NEGATIVE_INFINITY;
        each_row([&](int m, int r) { highest = fmaxf(highest, offset[m][r]); });
        return __all_sync(~0u, highest < -NEGATIVE_INFINITY);
    }

    /// Begins a tile whose exponents are relative to earlier maxima. A row without one gets an infinite sum.
    DEVICE void keep_max() {
        each_row([&](int m, int r) { tile_sum[m][r] = -0.0f; });  // what it is added to stays as it is: no instruction
    }

    /// The step of the paper: each row's largest score so far becomes its maximum, and scores become exponents.
    template <int N_TILES> DEVICE void online_softmax_step(float (&scores)[M_TILES][N_TILES][4]) {
        each_row([&](int m, int r) {
            float even = scores[m][0][2 * r], odd = scores[m][0][2 * r + 1];
            UNROLL for (int n = 1; n < N_TILES; ++n) {
                even = fmaxf(even, scores[m][n][2 * r]);
                odd = fmaxf(odd, scores[m][n][2 * r + 1]);
            }
            float maximum = -quad_max(fmaxf(even, odd)) * factor;
            if constexpr (Dtype::FIRST != 0) maximum += Dtype::FIRST;
            const float lowest = fminf(offset[m][r], maximum);
            const bool unset = lowest == -NEGATIVE_INFINITY;  // the row has met only scores of -inf
            // Of a row without a maximum, earlier output is 0 as it is.
            rescale[m][r] = offset[m][r] == -NEGATIVE_INFINITY ? 1.0f : exp2_flushed(lowest - offset[m][r]);
            row_sum[m][r] *= rescale[m][r];
            offset[m][r] = lowest;
            const float shift = unset ? 0.0f : lowest;
            UNROLL for (int i = 0; i < 2 * N_TILES; ++i) {
                float& x = scores[m][i / 2][2 * r + i % 2];
                x = fmaf(x, factor, shift);
            }
            tile_sum[m][r] = 0;
        });
    }

    /// Four exponents of one fragment of row tile m to probabilities.
    DEVICE void to_probs(int m, float (&x)[4]) {
        UNROLL for (int i = 0; i < 4; ++i) {
            x[i] = exp2_flushed(x[i]);
            tile_sum[m][i / 2] += x[i];
        }
    }

    /// Whether maxima are still valid: no sum of the warp is beyond `limit`, or NaN. `held`: what else must be true.
    DEVICE bool max_still_valid(float limit, bool held = true) const {
        bool all = held;
        each_row([&](int m, int r) { all &= tile_sum[m][r] <= limit; });
        return __all_sync(~0u, all);
    }

    DEVICE void end_tile() {
        each_row([&](int m, int r) { row_sum[m][r] += tile_sum[m][r]; });
    }

    /// Earlier output, relative to the maxima that `online_softmax_step` left.
    template <int D_TILES> DEVICE void rescale_rows(float (&out)[M_TILES][D_TILES][4]) const {
        bool moved = false;
        each_row([&](int m, int r) { moved |= rescale[m][r] != 1; });
        if (!__any_sync(~0u, moved)) return;
        each_row([&](int m, int r) {
            UNROLL for (int i = 0; i < 2 * D_TILES; ++i) out[m][i / 2][2 * r + i % 2] *= rescale[m][r];
        });
    }

    /// What to multiply the row's output by. `row_max` becomes what its sum is relative to, -inf if it has no weight;
    /// `sink` takes part in the sum alone: both in natural units. All lanes of the quad must call.
    DEVICE float finish(int m, int r, float sink, float& row_max, float& sum) const {
        sum = quad_sum(row_sum[m][r]);
        const float maximum = sum == 0 ? NEGATIVE_INFINITY : -offset[m][r] * LN_2;
        row_max = fmaxf(maximum, sink);
        if (row_max == NEGATIVE_INFINITY) return 0;
        if (sink == NEGATIVE_INFINITY) return normal_reciprocal(sum);  // known where there is no sink
        const float weight = expf(maximum - row_max);
        sum = sum * weight + expf(sink - row_max);
        return weight / sum;
    }
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

/// Whether k and v may have rows, of any contents, behind a sequence's last key: other sequences', or a cache's.
template <class Params> DEVICE bool rows_follow_keys(const Params& params) {
    return params.cu_seqlens_kv != nullptr || params.kv_lens != nullptr;
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

// ---- output.cuh
/// fp32 results as they are. What a type of stored results tells: how two neighbouring columns become 32-bit words.
struct Unrounded {
    using Element = float;
    static constexpr int WORDS = 2;
    static DEVICE void words(unsigned (&word)[2], float x, float y) {
        word[0] = __float_as_uint(x);
        word[1] = __float_as_uint(y);
    }
};

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

// ---- group_queries.cuh
/// Which query and head the 64 rows of each warpgroup are of: row i is query i / heads, of head i % heads of those that stand
/// together. What is left behind whole queries is no row.
struct QuerySlots {
    int heads, inverse;  // ceil(2^16 / heads): a multiplication in place of a division, exact up to 64

    template <class Params>
    DEVICE explicit QuerySlots(const Params& params) : heads(params.row_heads), inverse(params.row_heads_inverse) {}

    /// How many a warpgroup has.
    DEVICE int queries() const { return 64 * inverse >> 16; }

    /// Counted from the block's first.
    DEVICE int query(int slot) const { return slot / 64 * queries() + in_warpgroup(slot); }

    /// Counted from the group's first.
    DEVICE int head(int slot) const { return min(slot % 64 - in_warpgroup(slot) * heads, heads - 1); }

    DEVICE bool holds(int slot) const { return slot % 64 < queries() * heads; }

private:
    DEVICE int in_warpgroup(int slot) const { return min(slot % 64 * inverse >> 16, queries() - 1); }
};

/// Rows of a block as they stand in a tensor: `target` is its first query of the group's first head, strides are in elements.
template <class Element> struct GroupPlaces {
    Element* target;
    long long head_stride, row_stride;
    QuerySlots slots;
    int queries;  // from the block's first on

    DEVICE bool holds(int slot) const { return slots.holds(slot) && slots.query(slot) < queries; }

    DEVICE long long offset(int slot) const { return slots.head(slot) * head_stride + slots.query(slot) * row_stride; }
};

/// The rows of a tile of Q: those of query heads that share a key head, so that its keys and values are loaded once for them.
/// See group_rows.cuh for tiles that begin within a query.
template <class Order> struct QueryRows {
    const Work& work;  // its head counts groups
    QuerySlots slots;
    int first, last;  // q_idx

    template <class Params>
    DEVICE QueryRows(const Params& params, const Work& work)
        : work(work), slots(params), first(work.q_block * (Order::BLOCK / 64) * slots.queries()),
          last(min(first + Order::BLOCK / 64 * slots.queries(), work.q_len) - 1) {}

    DEVICE bool exist() const { return (unsigned)first < (unsigned)work.q_len; }
    DEVICE bool holds(int slot) const { return slots.query(slot) < work.q_len - first; }

    /// The first of the group.
    DEVICE int head() const { return work.head * slots.heads; }

    /// The first slot of the calling warp's rows.
    template <int WARP_ROWS> DEVICE int warp_slot() const { return threadIdx.x / 32 * WARP_ROWS; }

    /// Where the rows stand in a tensor with these strides, in elements.
    template <class Element>
    DEVICE GroupPlaces<Element> places(Element* tensor, long long batch_stride, long long head_stride,
                                       long long row_stride) const {
        Element* target = tensor + work.batch_index * batch_stride + head() * head_stride +
                          (work.q_start + (long long)first) * row_stride;
        return {target, head_stride, row_stride, slots, work.q_len - first};
    }
};

/// What a lane knows of its rows, made anew wherever they are used: kept, they would take registers from the products.
template <class Order, int M_TILES> struct LaneRows {
    int q_first, q_last;  // of the block
    int slot;             // this warp's first
    int first_head;
    QuerySlots slots;

    DEVICE LaneRows(const QueryRows<Order>& rows, int slot)
        : q_first(rows.first), q_last(rows.last), slot(slot), first_head(rows.head()), slots(rows.slots) {}

    DEVICE int q_idx(int m, int r) const { return min(q_first + slots.query(own_slot(m, r)), q_last); }
    DEVICE int head(int m, int r) const { return first_head + slots.head(own_slot(m, r)); }

private:
    DEVICE int own_slot(int m, int r) const { return opaque(slot + threadIdx.x % 32 / 4) + 16 * m + 8 * r; }
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

// ---- scores.cuh
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

/// One of `splits` equal shares of the range, in whole tiles.
template <int BLOCK_KV> DEVICE TileRange share(TileRange range, int split, int splits) {
    const int first = range.begin / BLOCK_KV, tiles = max((range.end + BLOCK_KV - 1) / BLOCK_KV - first, 0);
    const int size = (tiles + splits - 1) / splits;
    range.begin = max(range.begin, (first + split * size) * BLOCK_KV);
    range.end = min(range.end, (first + (split + 1) * size) * BLOCK_KV);
    return range;
}

/// What is kept of a tile that the loop bounds leave open. A tile that reaches beyond the last key is never FULL.
template <class Order, class KindOf>
DEVICE TileKind classify(const TileRange& range, int slot, int kv_len, KindOf& kind_of) {
    if (slot >= range.full_begin && slot + Order::BLOCK <= range.full_end) return FULL;
    const int kv_first = Order::first(slot);
    const TileKind kind = kind_of(kv_first, Order::last(kv_first, kv_len));
    return kind == FULL && !Order::whole(kv_first, kv_len) ? PARTIAL : kind;
}

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
    unsigned *next_block;
    const int *cu_seqlens_q, *cu_seqlens_kv, *kv_lens, *block_table, *q_offsets;
    long long q_stride_batch, q_stride_head, q_stride_row;
    long long k_stride_batch, k_stride_head, k_stride_row;
    long long v_stride_batch, v_stride_head, v_stride_row;
    long long out_stride_batch, out_stride_head, out_stride_row;
    int q_offset, q_offset_form, batch, num_heads, num_kv_heads, q_len, kv_len, q_blocks, splits, head_swizzle, blocks;
    float scale;
    int row_heads, row_heads_inverse, rows_each;
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
    int q_idx, h, q_pos;
};

DEVICE Row make_row(const Params& params, const Context& ctx, int q_idx, int h) {
    Row row = {q_idx, h};
#line 8 "specs/causal.attn"
    row.q_pos = row.q_idx + ctx.q_offset;
#line 702 "causal_forward_bf16_d128_split_sm_90a.cu"
    return row;
}

// keep if causal()
DEVICE unsigned keep_bits(const Params& params, const Context& ctx, const Row& row, int kv_idx) {
#line 8 "specs/causal.attn"
    return bits_below(row.q_pos + 1 - kv_idx);
#line 710 "causal_forward_bf16_d128_split_sm_90a.cu"
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
    DEVICE QueryBlock(const Params& params, const Context& context, const Rows& rows)
        : params(params), context(context), q_first(rows.first), q_last(rows.last),
          warp_row(rows.template warp_slot<WARP_ROWS>()), lane_rows(rows, warp_row) {}

    /// As far as `range` and `kind` go, the rows in `count` slots from `first` on, or the last one if there are none.
    DEVICE QueryBlock part(int first, int count) const {
        QueryBlock rows = *this;
        rows.q_first = min(q_first + QuerySlots(params).query(first), q_last);
        rows.q_last = min(rows.q_first + QuerySlots(params).query(count - 1), q_last);
        return rows;
    }

    /// The keys that some row keeps. What bounds don't decide, `kind` does. OF_LANES: each lane may have other rows.
    template <bool OF_LANES = false> DEVICE TileRange range(const KvOrder& order = {}) const {
        const KvBounds bounds = kv_bounds(params, context, q_first, q_last);
        auto of_rows = [](int x) { return OF_LANES ? x : uniform(x); };
        return {order.begin(of_rows(bounds.kv_begin)), of_rows(bounds.full_begin), of_rows(bounds.full_end),
                order.end(of_rows(bounds.kv_end))};
    }

    DEVICE TileKind kind(int kv_first, int kv_last) const { return PARTIAL; }

    /// A row of the lane.
    DEVICE Row row(int m, int r) const {
        return make_row(params, context, lane_rows.q_idx(m, r), lane_rows.head(m, r));
    }

    DEVICE void make_rows(Row (&rows)[M_TILES][2]) const {
        UNROLL for (int i = 0; i < 2 * M_TILES; ++i) rows[i / 2][i % 2] = row(i / 2, i % 2);
    }
};

/// A tile all of which is kept, without score lines. The interface is that of whole_tile_form.cu.j2.
struct WholeTile {
    DEVICE bool serves(const QueryBlock&, const Scores&) const { return true; }
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

    /// Where the rows of a block stand in an array like lse: of fp32, `width` of them a row.
    static DEVICE auto results(const Params& params, const Rows& rows, float* array, int width) {
        return rows.places(array, (long long)params.num_heads * params.q_len * width, (long long)params.q_len * width, width);
    }
    /// Stores what one split found, for the combine kernel to merge: O normalised, l and m, all in fp32. An lse in their
    /// place would be rounded at its own size, which fp32 results would show.
    DEVICE void store_partial(const Params& params, const Rows& rows, int warp_row, const Out& out) const {
        const int batch = params.cu_seqlens_q == nullptr ? params.batch : 1;
        const long long first = (long long)rows.work.split * batch * params.num_heads * params.q_len;
        store_rows<Unrounded, VALUE_HEAD_DIM, OutColumns>(
            results(params, rows, params.partial_out + first * VALUE_HEAD_DIM, VALUE_HEAD_DIM), warp_row, out, factor);
        if (params.row_max == nullptr) return;  // no normaliser: splits just add up
        store_row_values<M_TILES>(results(params, rows, params.row_max + first, 1), warp_row,
                                  [&](int own) { return row_max[own]; });
        store_row_values<M_TILES>(results(params, rows, params.row_sum + first, 1), warp_row,
                                  [&](int own) { return row_sum[own]; });
    }
};
// ---------------------------------------------------------------- leaf code, continued

// ---- tile_scheduler.cuh
/// The block to work on after `index`, -1 if none is left: where all take alike long, each thread block has its share.
/// The warp calls together. Thread blocks ask until they are told -1: as none asks for its first block, there are
/// `blocks` questions in all, and the last brings the counter back to the 0 where the first found it.
template <class Params> DEVICE int next_work_tile(const Params& params, int index) {
    if (params.next_block == nullptr)
        index += gridDim.x;
    else if (threadIdx.x % 32 == 0)
        index = atomicInc(params.next_block, params.blocks - 1) + gridDim.x;
    return __shfl_sync(~0u, index < params.blocks ? index : -1, 0);
}

// ---- group_tiles.cuh
// Tiles of keys as groups of a block's rows see them: those of each warpgroup, or all together. Of the warp that walks
// tiles, lane i brings the range of keys of group i % GROUPS.

/// A tile by its first slot, and what it is to each group: bit i of `live` and of `full`. None live: there is no tile.
struct GroupTile {
    int slot;
    unsigned live, full;

    DEVICE TileKind kind(int group) const {
        return (live >> group & 1) == 0 ? EMPTY : full >> group & 1 ? FULL : PARTIAL;
    }
};

/// What spans the ranges of all lanes; where nothing is full.
DEVICE TileRange span(const TileRange& own) {
    const bool some = own.begin < own.end;
    const int begin = __reduce_min_sync(~0u, some ? own.begin : 0x7fffffff);
    const int end = __reduce_max_sync(~0u, some ? own.end : 0);
    return {min(begin, end), 0, 0, end};
}

// ---- descending_tiles.cuh
/// The tiles of which some group of rows keeps keys, in descending order. Lanes classify as many at once as they can.
template <class Order, int GROUPS, class KindOf> struct DescendingTiles {
    static constexpr int BLOCK_KV = Order::BLOCK, TILES = 32 / GROUPS;
    static constexpr unsigned GROUP = (1u << GROUPS) - 1;

    const TileRange& own;         // of the lane
    const int begin;              // the least slot of all lanes
    KindOf& kind_of;
    int kv_len;
    int next;                     // first slot of the last tile that isn't classified
    unsigned live = 0, full = 0;  // from bit GROUPS * i on the tile i tiles below the first of a batch

    /// `all` spans the ranges of all lanes.
    DEVICE DescendingTiles(const TileRange& own, const TileRange& all, int kv_len, KindOf& kind_of)
        : own(own), begin(all.begin), kind_of(kind_of), kv_len(kv_len), next((all.end - 1) / BLOCK_KV * BLOCK_KV) {
        if (all.end <= all.begin) next = -1;
    }

    DEVICE GroupTile advance() {
        while (live == 0) {
            if (next + BLOCK_KV <= begin || next < 0) return {};
            const int lane = threadIdx.x % 32, slot = next - lane / GROUPS * BLOCK_KV;
            TileKind kind = EMPTY;
            if (lane < TILES * GROUPS && slot >= 0 && slot + BLOCK_KV > own.begin && slot < own.end)
                kind = classify<Order>(own, slot, kv_len, kind_of);
            live = __ballot_sync(~0u, kind != EMPTY);
            full = __ballot_sync(~0u, kind == FULL);
            next -= TILES * BLOCK_KV;
        }
        const int tile = (__ffs(live) - 1) / GROUPS, shift = tile * GROUPS;
        const GroupTile found = {next + (TILES - tile) * BLOCK_KV, live >> shift & GROUP, full >> shift & GROUP};
        live &= ~(GROUP << shift);
        return found;
    }
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

    /// Offset of a row's chunk within a panel of WIDTH bytes.
    template <int WIDTH> static DEVICE unsigned in_panel(unsigned row, unsigned chunk) {
        const unsigned line = row / (128 / WIDTH);
        return row * WIDTH + (chunk ^ line % (WIDTH / 16)) * 16;
    }

    /// Where a panel starts whose first chunk is `chunk`.
    static constexpr DEVICE unsigned panel(int chunk) { return chunk * 16 * ROWS; }
};

// ---- load_matrices.cuh
DEVICE void load_matrices(unsigned (&x)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address));
}

// ---- warp_scores.cuh
/// scores = Q K^T by one warp alone, which has lost its own, while others go on: wgmma would need all four of the
/// group. For 16 rows of Q from `first_row` on, and all keys; both tiles have panels of 128 bytes only. Lanes hold what
/// wgmma and mma.m16n8k16 give them: row lane/4 + 8*(i/2) and column 2*(lane%4) + i%2 of each 16 x 8 scores.
template <class Dtype, class QTile, class KTile, int N_TILES>
DEVICE void multiply_by_warp(float (&scores)[1][N_TILES][4], unsigned queries, int first_row, unsigned keys) {
    const int lane = threadIdx.x % 32;
    const unsigned k_lane = keys + KTile::template in_panel<128>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    UNROLL for (int i = 0; i < 4 * N_TILES; ++i) scores[0][i / 4][i % 4] = 0;
    NO_UNROLL for (int step = 0; step < KTile::CHUNKS / 2 * Dtype::PARTS; ++step) {
        const int row = first_row + lane % 16, chunk = (row * 16 ^ lane) & 7 * 16;  // of its line: 0 or 1, XOR the row's number
        const unsigned q_lane = queries + row * 128 + chunk;
        const int first = 2 * (step / Dtype::PARTS);  // chunk of the tile's rows
        unsigned q[4], k[4];
        load_matrices(q, (q_lane ^ first % 8 * 16) + QTile::panel(first / 8 * 8));
        UNROLL for (int n = 0; n < N_TILES; n += 2) {
            load_matrices(k, (k_lane ^ first % 8 * 16) + KTile::panel(first / 8 * 8) + 8 * n * 128);
            UNROLL for (int i = 0; i < 2; ++i) Dtype::mma(scores[0][n + i], q, k[2 * i], k[2 * i + 1]);
        }
    }
}

// ---- barrier.cuh
// Barriers in shared memory (mbarrier, sm_90): a full one counts the bytes that TMA brings, an empty one the warps that
// have read a stage. Named barriers join the warps of a warpgroup.

DEVICE void barrier_init(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/// Makes what `barrier_init` wrote visible to TMA.
DEVICE void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DEVICE void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// One arrival for the warp. Its lanes have left what the barrier guards: what they did there together (wgmma,
/// ldmatrix) or before a barrier of theirs is done, and what the producer wrote this lane alone has read.
DEVICE void warp_arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/// Whether the lane is the one of its warp that asks TMA: the compiler knows that it is alone.
DEVICE bool elected_lane() {
    unsigned elected;
    asm volatile("{ .reg .pred elected; elect.sync _|elected, 0xffffffff; selp.u32 %0, 1, 0, elected; }" : "=r"(elected));
    return elected;
}

/// Arrives; the phase then also waits for this many bytes of TMA.
DEVICE void barrier_arrive_expecting(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Waits for the end of the barrier's phase of this parity; one that has just been initialised is past parity 1.
DEVICE void barrier_wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{ .reg .pred done; WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @done bra DONE; bra WAIT; DONE: }"
        ::"r"(barrier), "r"(parity) : "memory");
}

/// Named barriers 1 to 15; 0 is __syncthreads. `threads` counts those that wait.
DEVICE void named_wait(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

/// A position in a ring of stages. Its parity flips each turn: from 0 for consumers, from 1 for a producer (all free).
template <int STAGES> struct Ring {
    unsigned parity;
    int stage = 0;

    DEVICE explicit Ring(unsigned parity) : parity(parity) {}

    DEVICE void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

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

DEVICE void load_words(unsigned address, unsigned (&x)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address) : "memory");
}

DEVICE void store_words(unsigned address, const unsigned (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// ---- pipeline.cuh
/// What the producer tells a group of a block's rows, a warpgroup's or all, about a stage of keys.
struct TileInfo {
    Tile tile;    // EMPTY: no key of it matters to the rows
    bool loaded;  // false: no key at all matters to the block of queries, and nothing is loaded for it
    bool last;    // of a block of queries
    bool gap;     // the next one is EMPTY
    bool end;     // no tile at all: nothing is left to do
};

/// A block of queries that the producer is to load.
struct Plan {
    Work work;
    int kv_head;  // -1: nothing is left to do
};

/// What warps share, behind the tiles in shared memory: barriers, and what few work out for all. The planner hands
/// blocks of queries to the producer, with the keys that each group of rows looks at. Each stage of keys has tile info
/// for each group, so that consumers walk no tiles; with its Q, each warpgroup gets the work, so that they decode no
/// index. Two works are kept: one is needed again when the next Q has come. A warp's first lane reads tile info and
/// works, and arrives at their barriers, for all lanes. Who writes a part of tile info or of a plan arrives for itself.
template <int STAGES, int WARPGROUPS, int GROUPS> struct Pipeline {
    static constexpr int QUERY_BARRIERS = 4 * STAGES, PLAN_BARRIERS = QUERY_BARRIERS + 2 * WARPGROUPS;
    static constexpr int SLOT_BYTES = 48;  // kernels/hopper_forward/facts.py counts so many
    static constexpr int PLAN_AT = (8 * (PLAN_BARRIERS + 2) + 15) / 16 * 16, RANGES_AT = PLAN_AT + SLOT_BYTES;
    static constexpr int WORKS_AT = RANGES_AT + 16 * GROUPS, TILE_INFO_AT = WORKS_AT + 2 * WARPGROUPS * SLOT_BYTES;
    static constexpr int BYTES = TILE_INFO_AT + 4 * STAGES * GROUPS;

    static_assert(sizeof(Plan) <= SLOT_BYTES && sizeof(TileRange) == 16, "they fill what is kept for them");

    unsigned base;

    DEVICE unsigned barrier(int number) const { return base + 8 * number; }
    DEVICE unsigned keys_full(int stage) const { return barrier(stage); }
    DEVICE unsigned keys_empty(int stage) const { return barrier(STAGES + stage); }
    DEVICE unsigned values_full(int stage) const { return barrier(2 * STAGES + stage); }
    DEVICE unsigned values_empty(int stage) const { return barrier(3 * STAGES + stage); }
    DEVICE unsigned queries_full(int warpgroup) const { return barrier(QUERY_BARRIERS + warpgroup); }
    DEVICE unsigned queries_empty(int warpgroup) const { return barrier(QUERY_BARRIERS + WARPGROUPS + warpgroup); }
    DEVICE unsigned plan_full() const { return barrier(PLAN_BARRIERS); }
    DEVICE unsigned plan_empty() const { return barrier(PLAN_BARRIERS + 1); }

    /// `leaving`: how many warps arrive when they have left a stage.
    DEVICE void init(int leaving) const {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(keys_full(stage), GROUPS + 1);
            barrier_init(keys_empty(stage), leaving);
            barrier_init(values_full(stage), 1);
            barrier_init(values_empty(stage), leaving);
        }
        for (int warpgroup = 0; warpgroup < WARPGROUPS; ++warpgroup) {
            barrier_init(queries_full(warpgroup), 1);
            barrier_init(queries_empty(warpgroup), 4);
        }
        barrier_init(plan_full(), 32);
        barrier_init(plan_empty(), 2 * 32);
        barrier_init_done();
    }

    /// By one lane for each group, before it arrives at the stage's full barrier. The lane that loads arrives as well.
    DEVICE void write(int stage, int group, const TileInfo& info) const {
        const int kind = info.loaded ? (int)info.tile.kind : NONE;
        const int flags = kind | (info.last ? LAST : info.gap ? GAP : 0);
        store_word(tile_info_at(stage, group), info.end ? NONE : info.tile.kv_first | flags);
    }

    /// By a whole warp, as `read_work`; `address` is its `tile_info_at`.
    DEVICE TileInfo read(unsigned address) const {
        const int word = take_word(address), flags = word & FRAGMENT_KEYS - 1;
        return {{word & -FRAGMENT_KEYS, (TileKind)(flags & NONE)}, (flags & NONE) != NONE, (flags & LAST) != 0,
                (flags & GAP) != 0, flags == NONE};
    }

    DEVICE unsigned tile_info_at(int stage, int group) const {
        return base + TILE_INFO_AT + 4 * (stage * GROUPS + group);
    }

    /// By one lane, before it arrives at the warpgroup's full barrier. `turn` is 0 and 1 by turns.
    DEVICE void write_work(int warpgroup, unsigned turn, const Plan& plan) const {
        put(work_at(warpgroup, turn), plan);
    }

    DEVICE Plan read_plan_of(int warpgroup, unsigned turn) const { return take<Plan>(work_at(warpgroup, turn)); }
    DEVICE Work read_work(int warpgroup, unsigned turn) const { return take<Work>(work_at(warpgroup, turn)); }

    /// By a whole warp, which arrives at the full barrier next; lane i brings the range of group i % GROUPS.
    DEVICE void write_plan(const Plan& plan, const TileRange& range) const {
        const int lane = threadIdx.x % 32;
        if (lane == 0) put(base + PLAN_AT, plan);
        if (lane < GROUPS) put(base + RANGES_AT + 16 * lane, range);
    }

    /// By a whole warp. Lane i gets the range of group i % GROUPS.
    DEVICE Plan read_plan(TileRange& range) const {
        unsigned words[4];
        load_words(base + RANGES_AT + threadIdx.x % 32 % GROUPS * 16, words);
        memcpy(&range, words, sizeof(range));
        return take<Plan>(base + PLAN_AT);
    }

protected:
    static DEVICE int take_word(unsigned address) { return uniform(threadIdx.x % 32 == 0 ? load_word(address) : 0); }

    // A tile begins at a slot (see tiles_1d.cuh) that is a multiple of 16: the bits below say the rest.
    static constexpr int FRAGMENT_KEYS = 16, NONE = 3, GAP = 4, LAST = 8;

    DEVICE unsigned work_at(int warpgroup, unsigned turn) const {
        return base + WORKS_AT + (2 * warpgroup + turn) * SLOT_BYTES;
    }

    template <class T> static DEVICE void put(unsigned address, const T& x) {
        unsigned words[(sizeof(T) + 15) / 16][4] = {};
        memcpy(words, &x, sizeof(T));
        UNROLL for (int i = 0; i < sizeof(words) / 16; ++i) store_words(address + 16 * i, words[i]);
    }

    template <class T> static DEVICE T take(unsigned address) {
        unsigned words[(sizeof(T) + 15) / 16][4] = {};
        if (threadIdx.x % 32 == 0)
            UNROLL for (int i = 0; i < sizeof(words) / 16; ++i) load_words(address + 16 * i, words[i]);
        T x;
        memcpy(&x, words, sizeof(T));
        return uniform_struct(x);
    }
};

// ---- tma.cuh
// The tensor memory accelerator: one thread asks for a box of a tensor, which arrives swizzled in shared memory as a
// panel of a `SharedTile`. Maps are made by the launcher: axes (column, row, head, batch), boxes of 64 columns.

struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

DEVICE void tma_prefetch(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map)); }

/// The coordinate of entry `index` of an axis. Entries that share memory, their stride being 0, are one to the map.
DEVICE int coordinate(int index, long long stride) { return stride == 0 ? 0 : index; }

/// The box from (column, row) on, with the map's number of rows; columns and rows outside the tensor become zeros.
DEVICE void tma_load(unsigned target, const TensorMap& map, unsigned barrier, int column, int row, int head,
                     int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];"
                 ::"r"(target), "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch) : "memory");
}

/// Orders this thread's ordinary accesses to shared memory before later ones by TMA and wgmma.
DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- tma_1d.cuh
/// Loads a tile of rows from `position` on, with zeros for what lies outside the tensor; `barrier` expects its bytes.
template <class Tile, class Order>
DEVICE void tma_load_panels(unsigned target, const TensorMap& map, unsigned barrier, int position, int head,
                            int batch) {
    UNROLL for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        tma_load(target + panel * Tile::ROWS * 128, map, barrier, panel * 64, position, head, batch);
}

// ---- kv_in_rows.cuh
/// Loads the tile of K, or of V, that begins with key `first` of a sequence; `barrier` expects its bytes. `operand` is
/// 0 and 1, for blocks that load for each other. See kv_in_pages.cuh for the other way.
template <class Tile, class Order, class Params>
DEVICE void load_kv(unsigned target, const TensorMap& map, unsigned barrier, const Params& params, const Work& work,
                    int first, int head, long long batch_stride, unsigned operand) {
    tma_load_panels<Tile, Order>(target, map, barrier, work.kv_start + first, head,
                                 coordinate(kv_batch(params, work), batch_stride));
}

// ---- tma_5d.cuh
/// As `tma_load`, of a map whose rows have two axes: (column, inner row, outer row, head, batch).
DEVICE void tma_load_5d(unsigned target, const TensorMap& map, unsigned barrier, int column, int inner, int outer,
                        int head, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(target),
        "l"(&map), "r"(barrier), "r"(column), "r"(inner), "r"(outer), "r"(head), "r"(batch)
        : "memory");
}

/// Brings such a box into the L2 cache, ahead of its load.
DEVICE void tma_fetch_5d_ahead(const TensorMap& map, int column, int inner, int outer, int head, int batch) {
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map), "r"(column),
                 "r"(inner), "r"(outer), "r"(head), "r"(batch)
                 : "memory");
}

// ---- warpgroup.cuh
// What consumers do to tiles before wgmma reads them. Each warpgroup has a named barrier, and all have one more.

DEVICE void warpgroup_wait(int warpgroup) { named_wait(1 + warpgroup, 128); }

/// Moves the sign of `scale`, and zero, into the warpgroup's Q tile; returns the positive factor that scores then need.
template <class Dtype, class QTile> DEVICE float take_sign(unsigned queries, float scale, int warpgroup) {
    if (!(scale <= 0)) return scale;
    NO_UNROLL for (int byte = threadIdx.x % 128 * 4; byte < QTile::BYTES; byte += 128 * 4) {
        const unsigned word = load_word(queries + byte);
        store_word(queries + byte, scale == 0 ? 0 : word ^ Dtype::SIGN_BITS);
    }
    fence_async();
    warpgroup_wait(warpgroup);
    return scale == 0 ? 1 : -scale;
}

/// Zeros in place of a tile's rows from `rows` on: they belong to another sequence, and 0 times what they hold may be
/// NaN. THREADS share the work, all that multiply or those of one warpgroup, and wait for each other at `barrier`.
template <class Tile, int THREADS> DEVICE void clear_rows(unsigned tile, int rows, int barrier = 1 + THREADS / 128) {
    NO_UNROLL for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        NO_UNROLL for (int at = (rows * 8 + thread_index() % THREADS) * 16; at < Tile::ROWS * 128; at += THREADS * 16)
            store_words(tile + panel * Tile::ROWS * 128 + at, {0, 0, 0, 0});
    fence_async();
    named_wait(barrier, THREADS);
}

// ---- queries_of_group.cuh
// How TMA brings the rows of Q, where a block's are of all heads that stand together: by maps with the axes (column, head of the
// group, query, group, batch).

/// Of a warpgroup's rows, those that loads bring.
template <class Params>
DEVICE int loaded_rows(const Params& params) { return QuerySlots(params).queries() * params.row_heads; }

/// Their bytes.
template <class Tile, class Params>
DEVICE int query_bytes(const Params& params) { return loaded_rows(params) * Tile::ROW_BYTES; }

/// Brings them into the L2 cache.
template <class Tile, class Order>
DEVICE void fetch_queries_ahead(const TensorMap& map, int query, int group, int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel) tma_fetch_5d_ahead(map, panel * 64, 0, query, group, batch);
}

/// Loads them; `barrier` expects their bytes.
template <class Tile, class Order>
DEVICE void load_queries(unsigned target, const TensorMap& map, unsigned barrier, int query, int group, int batch) {
    UNROLL for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        tma_load_5d(target + panel * Tile::ROWS * 128, map, barrier, panel * 64, 0, query, group, batch);
}

/// Zeros in rows that no load brings: what is no number there would tell a warp that its maxima don't hold. By a warpgroup.
template <class Tile, class Params>
DEVICE void clear_other_rows(const Params& params, unsigned queries, int warpgroup) {
    if (loaded_rows(params) < Tile::ROWS) clear_rows<Tile, 128>(queries, loaded_rows(params), 1 + warpgroup);
}

// ---- wgmma.cuh
// Warpgroup matrix multiply (wgmma, sm_90a): asynchronous, operands in shared memory in panels of 64 columns with the
// 128-byte swizzle (`SharedTile` with rows of a multiple of 128 bytes), or A in registers. Accumulators are x[n][i]:
// warp w of the group has rows 16w to 16w + 15, and its lanes the rows and columns that mma.m16n8k16 would give them.

// Operands of products: the accumulators of a column tile, or of four; a step's offsets of B and A, or A's registers.
#define SUM_TILE(n) "+f"(sum[n][0]), "+f"(sum[n][1]), "+f"(sum[n][2]), "+f"(sum[n][3])
#define SUM_TILES(n) SUM_TILE(n), SUM_TILE(n + 1), SUM_TILE(n + 2), SUM_TILE(n + 3)
#define A_IN_SMEM(step) "n"(BSteps::at(step)), "n"(ASteps::at(step))
#define A_IN_REGISTERS(step) "n"(BSteps::at(step)), "r"(a[step][0]), "r"(a[step][1]), "r"(a[step][2]), "r"(a[step][3])

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Keeps the compiler from moving uses of an asynchronous result above the wait for it.
template <int N_TILES> DEVICE void pin(float (&x)[1][N_TILES][4]) {
    UNROLL for (int i = 0; i < 4 * N_TILES; ++i) asm volatile("" : "+f"(x[0][i / 4][i % 4])::"memory");
}

/// Waits until at most PENDING groups are under way; `result` is what the others computed.
template <int PENDING, int N_TILES> DEVICE void wgmma_wait(float (&result)[1][N_TILES][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    pin(result);
}

[[maybe_unused]] constexpr unsigned long long SWIZZLE_128 = 1, SWIZZLE_32 = 3;

/// What a matrix descriptor (PTX ISA) says besides addresses: the swizzle, and how many bytes 8 rows take.
constexpr __device__ unsigned long long descriptor_form(unsigned long long swizzle, unsigned eight_rows) {
    return swizzle << 62 | (unsigned long long)eight_rows >> 4 << 32;
}

/// A matrix descriptor of a tile in panels of 128 bytes: its address, and the offset from panel to panel, which counts
/// where columns aren't summed over. Added to it are offsets in units of 16 bytes, by one 64-bit uniform instruction.
DEVICE unsigned long long descriptor(unsigned address, unsigned panel_bytes) {
    return descriptor_form(SWIZZLE_128, 8 * 128) | panel_bytes >> 4 << 16 | (address & 0x3ffff) >> 4;
}

/// Offsets of 16 columns each, for operands whose columns are summed over: steps from FIRST on, of a tile of ROWS rows.
template <int ROWS, int FIRST = 0> struct ColumnSteps {
    static constexpr DEVICE unsigned at(int step) {
        return ((FIRST + step) / 4 * ROWS * 128 + (FIRST + step) % 4 * 32) >> 4;
    }
};

/// Offsets of 16 rows each, for operands whose rows are summed over.
struct RowSteps {
    static constexpr DEVICE unsigned at(int step) { return step * 16 * 128 >> 4; }
};

template <int COUNT> DEVICE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT> DEVICE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }

// ---- values_loaded.cuh
// P V of 16-bit operands: V is multiplied as TMA brings it. The interface is that of values_transposed.cuh.

constexpr int STEP_KEYS = 16;  // that one product sums over

template <class Loaded, int> using MultipliedValues = Loaded;

template <int STAGES, int WARPGROUPS, int GROUPS> using ValuesPipeline = Pipeline<STAGES, WARPGROUPS, GROUPS>;

/// Offsets of the steps' keys in the tile, for its descriptor.
template <class> using ValuesSteps = RowSteps;
constexpr unsigned long long VALUES_FORM = 0;

/// The A operand of a step, from its probabilities: tiles of 8 keys.
template <class Dtype> DEVICE void pack_probs(unsigned (&words)[4], const float (*x)[4]) {
    UNROLL for (int i = 0; i < 4; ++i) words[i] = Dtype::pack(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
}

// ---- finished.cuh
// A kernel that begins before the one ahead of it is done (programmatic dependent launch), and waits for what it needs of it:
// the one ahead counts what is finished.
//
// Nobody waits for good. Blocks of a launch behind are given room only when all blocks of this one have begun, each by
// `let_others_begin`, or have ended: who counts has its multiprocessor by then, and waits for nothing that comes behind.
//
// What has been added is seen. A warp's additions come before its `count_finished`: `__syncwarp` orders those of all lanes
// before the lane that counts, whose release makes them visible with the count. Who finds the whole count acquires it, and
// `__syncthreads` hands that on to the thread block.

/// Those that are launched behind this kernel may begin where there is room: they know what to wait for.
DEVICE void let_others_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---------------------------------------------------------------- what the warps share

constexpr int WARPGROUPS = WARPS / 4;  // consumers, 64 rows each; one more warpgroup loads
constexpr int GROUPS = 2, GROUP_ROWS = BLOCK_Q / GROUPS;  // of a block's rows, which tiles have info for
[[maybe_unused]] constexpr int RS_STEPS = 0;  // of 16 columns of Q, in registers
// Slots of a block that are left when the next one is planned: 128 keys.
[[maybe_unused]] constexpr int PLANNED_SLOTS = 128;
[[maybe_unused]] constexpr int FIRST_STEP = 16;  // column tiles whose pairs are tested at once in a block's first tile
[[maybe_unused]] constexpr float STALE_MAX_LIMIT = 0x1p40f;
constexpr int ELEMENT_BYTES = 2;  // of Q, K and V

using QTile = SharedTile<64, (HEAD_DIM * ELEMENT_BYTES + 127) / 128 * 128>;  // of one warpgroup
using KTile = SharedTile<BLOCK_KV, QTile::ROW_BYTES>;
using VTile = SharedTile<BLOCK_KV, (VALUE_HEAD_DIM * ELEMENT_BYTES + 127) / 128 * 128>;
using ValuesTile = MultipliedValues<VTile, PADDED_VALUE_HEAD_DIM>;  // as P V takes V
[[maybe_unused]] constexpr int STEPS = BLOCK_KV / STEP_KEYS, STEP_TILES = STEP_KEYS / 8;  // of P V, and their tiles
using Probs = unsigned[STEPS][4];                     // its A operands

/// Where things are in shared memory, and the barriers that guard them.
struct Shared : ValuesPipeline<STAGES, WARPGROUPS, GROUPS> {
    static constexpr int KEYS = WARPGROUPS * QTile::BYTES, LOADED = KEYS + STAGES * KTile::BYTES;
    static constexpr int VALUES = LOADED + 0;
    static constexpr int PIPELINE = VALUES + STAGES * ValuesTile::BYTES;

    unsigned address;

    DEVICE explicit Shared(unsigned address)
        : ValuesPipeline<STAGES, WARPGROUPS, GROUPS>{address + PIPELINE}, address(address) {}
    DEVICE unsigned queries(int warpgroup) const { return address + warpgroup * QTile::BYTES; }
    DEVICE unsigned keys(int stage) const { return address + KEYS + stage * KTile::BYTES; }
    DEVICE unsigned values(int stage) const { return address + VALUES + stage * ValuesTile::BYTES; }
    DEVICE unsigned loaded(int stage) const { return address + LOADED + stage * VTile::BYTES; }
};

DEVICE Context context_of(const Params& params, const Plan& plan) {
    return make_context(params, plan.work, plan.work.head * params.row_heads, plan.kv_head);
}

// ---------------------------------------------------------------- the planner

/// What is to be done for block `index` of queries, and the keys that its rows look at. By a whole warp, whose lane i
/// gets those of group i % GROUPS. False if a packed batch has the block to spare, or if lengths make no sense.
DEVICE bool find_plan(const Params& params, int index, Plan& plan, TileRange& range) {
    plan.work = find_queries<BLOCK_Q, true>(params, index, params.num_heads / params.row_heads, params.rows_each);
    find_rows(plan.work, params);
    const Rows rows(params, plan.work);
    if (!rows.exist()) return false;
    plan.kv_head = plan.work.head * params.row_heads / (params.num_heads / params.num_kv_heads);
    const Context context = context_of(params, plan);
    const QueryBlock block(params, context, rows);
    const KvOrder order = {};
    range = {};
    NO_UNROLL for (int group = 0; group < GROUPS; ++group) {
        const TileRange found = block.part(GROUP_ROWS * group, GROUP_ROWS).range(order);
        if (threadIdx.x % 32 % GROUPS == group && rows.holds(GROUP_ROWS * group)) range = found;
    }
    return true;
}

/// A warp that asks for a block and plans it while the producer loads the last tiles of the one before.
DEVICE void plan_blocks(const Params& params, const Shared& shared) {
    unsigned parity = 0;
    auto hand_over = [&](const Plan& plan, const TileRange& range) {
        shared.write_plan(plan, range);
        barrier_arrive(shared.plan_full());
    };
    Plan plan;
    TileRange range;
    for (int index = block_index(); index >= 0; index = next_work_tile(params, index)) {
        if (!find_plan(params, index, plan, range)) continue;
        hand_over(plan, range);
        barrier_wait(shared.plan_empty(), parity);
        parity ^= 1;
    }
    hand_over({{}, -1}, {});
}
// ---------------------------------------------------------------- the producer

/// Loads Q, and with it the work: each warpgroup's as soon as that is done with the block before.
struct QueryLoader {
    const Params& params;
    const TensorMap& q_map;
    const Shared& shared;
    unsigned parity = 1;

    /// The position of a warpgroup's first row.
    DEVICE int first_query(const Work& work, int warpgroup) const {
        return work.q_start + (work.q_block * WARPGROUPS + warpgroup) * QuerySlots(params).queries();
    }

    /// The last warpgroup comes first: under most masks it is done with the block before while others work on its last
    /// tiles, and its rows keep the first of this. Meanwhile Q comes to the L2 cache: nobody else reads these rows.
    DEVICE void load(const Plan& plan) {
        const int head = coordinate(plan.work.head, params.q_stride_head), batch = coordinate(plan.work.batch_index, params.q_stride_batch);
        NO_UNROLL for (int warpgroup = 0; warpgroup < WARPGROUPS; ++warpgroup)
            if (elected_lane()) fetch_queries_ahead<QTile, QOrder>(q_map, first_query(plan.work, warpgroup), head, batch);
        NO_UNROLL for (int warpgroup = WARPGROUPS - 1; warpgroup >= 0; --warpgroup) {
            // FlashAttention-3, Algorithm 1, lines 4 and 5: load Q.
            barrier_wait(shared.queries_empty(warpgroup), parity);
            if (elected_lane()) {
                const unsigned full = shared.queries_full(warpgroup);
                shared.write_work(warpgroup, parity, plan);
                barrier_arrive_expecting(full, query_bytes<QTile>(params));
                load_queries<QTile, QOrder>(shared.queries(warpgroup), q_map, full, first_query(plan.work, warpgroup), head,
                                               batch);
            }
        }
        parity ^= 1;
    }

    /// What a warp of its own does, so that K and V of the next block need not wait for the slowest warpgroup.
    DEVICE void run() {
        for (unsigned turn = 0;; turn ^= 1) {
            TileRange own;
            barrier_wait(shared.plan_full(), turn);
            const Plan plan = shared.read_plan(own);
            barrier_arrive(shared.plan_empty());
            if (plan.kv_head < 0) return;
            load(plan);
        }
    }
};

/// One warp, which loads K and V: for each block of queries its live tiles, the last first, keys one tile ahead of
/// values. It alone walks tiles; consumers read its tile info.
struct Producer {
    const Params& params;
    const TensorMap &k_map, &v_map;
    const Shared& shared;
    QueryLoader queries;
    Ring<STAGES> keys{1}, values{1};
    KvOrder order = {};
    int ask_below = 0;  // the slot below which the next plan is to be asked for; -1: it has been

    /// `tile` may be none: there is tile info even so. So may the `next` one. Lane i writes that of group i, and arrives.
    DEVICE void load_keys(const GroupTile& tile, const GroupTile& next, const Plan& plan, bool first) {
        const bool loaded = tile.live != 0, end = plan.kv_head < 0;
        const unsigned full = shared.keys_full(keys.stage);
        const int group = threadIdx.x % 32;
        barrier_wait(shared.keys_empty(keys.stage), keys.parity);
        if (group < GROUPS) {
            shared.write(keys.stage, group, {{tile.slot, tile.kind(group)}, loaded, next.live == 0, next.kind(group) == EMPTY, end});
            barrier_arrive(full);
        }
        if (elected_lane()) {
            if (loaded) {
                barrier_arrive_expecting(full, KTile::BYTES);
                load_kv<KTile, KvOrder>(shared.keys(keys.stage), k_map, full, params, plan.work, order.first(tile.slot),
                                        coordinate(plan.kv_head, params.k_stride_head), params.k_stride_batch, 0);
            } else {
                barrier_arrive(full);
            }
        }
        keys.advance();
    }

    DEVICE void load_values(const GroupTile& tile, const Plan& plan) {
        barrier_wait(shared.values_empty(values.stage), values.parity);
        if (elected_lane()) {
            const unsigned full = shared.values_full(values.stage);
            barrier_arrive_expecting(full, VTile::BYTES);
            load_kv<VTile, KvOrder>(shared.values(values.stage), v_map, full, params, plan.work, order.first(tile.slot),
                                    coordinate(plan.kv_head, params.v_stride_head), params.v_stride_batch, 1);
        }
        values.advance();
    }

    /// Asks for the next plan when few keys are left: a block asked for sooner might wait here while others are idle.
    DEVICE void ask_for_plan(int slot) {
        if (slot >= ask_below) return;
        barrier_arrive(shared.plan_empty());
        ask_below = -1;
    }

    /// All that a block of queries needs. `own` are the keys of the lane's group.
    DEVICE void load_block(const Plan& plan, TileRange own) {
        TileRange all = span(own);
        all = share<BLOCK_KV>(all, plan.work.split, params.splits);
        own.begin = max(own.begin, all.begin);
        own.end = min(own.end, all.end);
        const Context context = context_of(params, plan);
        const QueryBlock block(params, context, Rows(params, plan.work));
        const QueryBlock rows = block.part(GROUP_ROWS * (threadIdx.x % 32 % GROUPS), GROUP_ROWS);
        auto kind_of = [&](int kv_first, int kv_last) { return rows.kind(kv_first, kv_last); };
        DescendingTiles<KvOrder, GROUPS, decltype(kind_of)> tiles(own, all, plan.work.kv_len, kind_of);
        ask_below = all.begin + PLANNED_SLOTS;
        // Of three tiles in a row, the values of the first and the keys of the second are loaded: one piece of code.
        // FlashAttention-3, Algorithm 1, lines 6 to 10: for each tile, wait for a free stage, load K and V.
        GroupTile before, tile = {}, next = {};
        for (int number = -1;; ++number) {
            before = tile;
            tile = next;
            next = tiles.advance();
            if (number < 0) continue;
            const bool done = tile.live == 0;
            ask_for_plan(next.live == 0 ? -1 : next.slot);
            if (number == 0 || !done) load_keys(tile, next, plan, number == 0);
            if (number > 0) load_values(before, plan);
            if (done) return;
        }
    }

    DEVICE void run() {
        TileRange own;
        Plan plan;
        for (unsigned parity = 0;; parity ^= 1) {
            barrier_wait(shared.plan_full(), parity);
            plan = shared.read_plan(own);
            if (plan.kv_head < 0) break;
            load_block(plan, own);
        }
        load_keys({}, {}, {{}, -1}, true);
    }
};
// ---------------------------------------------------------------- queries times keys

/// sum = A B, added to what it holds if `accumulate`: 64 x 128, over 8 times 16.
#define STEP(b_step, a_step, adds) \
    "add.s64 b, %65, %" #b_step "; add.s64 a, %66, %" #a_step ";\n" \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
    " %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43," \
    " %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
    "}, a, b, " #adds ", 1, 1, 0, 0;\n"
template <class ASteps, class BSteps>
DEVICE void multiply_queries_keys_async(float (&sum)[16][4], unsigned long long a, unsigned long long b,
                                        int accumulate) {
    asm volatile(
        "{ .reg .pred first, more; setp.ne.b32 first, %64, 0; setp.eq.b32 more, 0, 0;\n"
        ".reg .b64 a, b;\n"
        STEP(67, 68, first) STEP(69, 70, more) STEP(71, 72, more) STEP(73, 74, more) STEP(75, 76, more)
        STEP(77, 78, more) STEP(79, 80, more) STEP(81, 82, more) "}"
        : SUM_TILES(0), SUM_TILES(4), SUM_TILES(8), SUM_TILES(12)
        : "r"(accumulate), "l"(b), "l"(a), A_IN_SMEM(0), A_IN_SMEM(1), A_IN_SMEM(2), A_IN_SMEM(3), A_IN_SMEM(4),
          A_IN_SMEM(5), A_IN_SMEM(6), A_IN_SMEM(7));
}
#undef STEP

/// A warpgroup's rows of Q, for products: from shared memory (SS), the first columns maybe from registers (RS).
struct Queries {
    const unsigned address;
    const unsigned long long tile;  // its matrix descriptor

    /// Starts Q K^T; `keys` is the descriptor of the K tile.
    DEVICE void start_scores(Scores& scores, unsigned long long keys) const {
        wgmma_fence();
        multiply_queries_keys_async<ColumnSteps<64, RS_STEPS>, ColumnSteps<BLOCK_KV, RS_STEPS>>(scores[0], tile, keys,
                                                                                                    RS_STEPS > 0);
        wgmma_commit();
    }
};
// ---------------------------------------------------------------- the consumers

/// sum = A B, added to what it holds if `accumulate`: 64 x 128, over 8 times 16.
#define STEP(b_step, a0, a1, a2, a3, adds) \
    "add.s64 b, %65, %" #b_step ";\n" \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
    " %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43," \
    " %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
    "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, b, " #adds ", 1, 1, 1;\n"
template <class BSteps>
DEVICE void multiply_probs_values_async(float (&sum)[16][4], const unsigned (&a)[8][4], unsigned long long b,
                                        int accumulate) {
    asm volatile(
        "{ .reg .pred first, more; setp.ne.b32 first, %64, 0; setp.eq.b32 more, 0, 0;\n"
        ".reg .b64 b;\n"
        STEP(66, 67, 68, 69, 70, first) STEP(71, 72, 73, 74, 75, more) STEP(76, 77, 78, 79, 80, more)
        STEP(81, 82, 83, 84, 85, more) STEP(86, 87, 88, 89, 90, more) STEP(91, 92, 93, 94, 95, more)
        STEP(96, 97, 98, 99, 100, more) STEP(101, 102, 103, 104, 105, more) "}"
        : SUM_TILES(0), SUM_TILES(4), SUM_TILES(8), SUM_TILES(12)
        : "r"(accumulate), "l"(b), A_IN_REGISTERS(0), A_IN_REGISTERS(1), A_IN_REGISTERS(2), A_IN_REGISTERS(3),
          A_IN_REGISTERS(4), A_IN_REGISTERS(5), A_IN_REGISTERS(6), A_IN_REGISTERS(7));
}
#undef STEP

/// A warpgroup: 64 rows of each block of queries. Q K^T of a tile runs beside P V of the one before it.
struct Consumer {
    const Params& params;
    const Shared& shared;
    const int warpgroup;
    // What matrix descriptors of tiles are offsets to; with the offset between panels of V, the one tile that needs it.
    const unsigned long long tiles;
    Queries queries;
    Ring<STAGES> keys{0}, values{0};
    unsigned queries_parity = 0;
    KvOrder order = {};

    WholeTile whole;
    TileMask mask;
    Scores scores;
    Probs probs;
    Out out;

    DEVICE Consumer(const Params& params, const Shared& shared, int warpgroup)
        : params(params), shared(shared), warpgroup(warpgroup), tiles(descriptor(shared.address, BLOCK_KV * 128)),
          queries{shared.queries(warpgroup), tiles + (long long)warpgroup * (QTile::BYTES >> 4)} {}

    /// Whether no key of a tile is masked.
    static DEVICE bool full(const Tile& tile) { return tile.kind == FULL; }

    /// Q K^T of a tile; beside it what its score lines don't need the products for.
    DEVICE void start_scores(const QueryBlock& block, const Tile& tile) {
        queries.start_scores(scores, tiles + (Shared::KEYS >> 4) + (long long)keys.stage * (KTile::BYTES >> 4));
    }

    /// P V of the tile that begins at `kv_first`. Dropout takes long, and waits until the next Q K^T is under way.
    DEVICE void start_output(QueryBlock& block, int kv_first) {
        barrier_wait(shared.values_full(values.stage), values.parity);
        const unsigned long long v = tiles + (VALUES_FORM + (Shared::VALUES >> 4)) + (long long)values.stage * (ValuesTile::BYTES >> 4);
        wgmma_fence();
        multiply_probs_values_async<ValuesSteps<ValuesTile>>(out[0], probs, v, 1);
        wgmma_commit();
    }

    /// The tile info as it was written, with a slot in place of `kv_first`.
    DEVICE TileInfo read_tile_info() {
        const unsigned address = own_tile_info();
        barrier_wait(shared.keys_full(keys.stage), keys.parity);
        return shared.read(address);
    }

    DEVICE void place(TileInfo& info) const { info.tile.kv_first = order.first(info.tile.kv_first); }

    DEVICE TileInfo read_next_tile_info() {
        TileInfo info = read_tile_info();
        place(info);
        return info;
    }

    DEVICE void release_keys() {
        warp_arrive(shared.keys_empty(keys.stage));
        keys.advance();
    }

    DEVICE void release_values() {
        warp_arrive(shared.values_empty(values.stage));
        values.advance();
    }

    DEVICE void exponentiate(Normalizer<1>& normalizer) {
        UNROLL for (int n = 0; n < N_TILES; ++n) normalizer.to_probs(0, scores[0][n]);
    }

    /// Probabilities to operands, whose registers P V of the tile before leaves only now: the longer that has, the better.
    template <class OutputDone> DEVICE void to_operands(OutputDone output_done) {
        output_done();
        UNROLL for (int step = 0; step < STEPS; ++step) pack_probs<Dtype>(probs[step], &scores[0][step * STEP_TILES]);
    }

    /// Q K^T once more, of the warp alone.
    DEVICE void multiply_again() {
        multiply_by_warp<Dtype, QTile, KTile>(scores, queries.address, thread_index() / 32 % 4 * 16, shared.keys(keys.stage));
        fence_async();  // all lanes have read before `warp_arrive` lets the next load come
        __syncwarp();
    }

    /// A tile of which nothing is masked, and whose score lines have a cheap form here, which is tested ahead. False if the
    /// old maxima were no longer valid; the scores are lost then.
    template <class OutputDone>
    DEVICE bool try_stale_max(Normalizer<1>& normalizer, QueryBlock& block, OutputDone output_done) {
        normalizer.to_exponents(scores);
        normalizer.keep_max();
        exponentiate(normalizer);
        if (!normalizer.max_still_valid(STALE_MAX_LIMIT)) return false;
        to_operands(output_done);
        return true;
    }
    /// FlashAttention-2, Algorithm 1, lines 9 and 10: new maxima, P, and earlier output relative to them.
    template <class OutputDone>
    DEVICE void online_softmax_step(Normalizer<1>& normalizer, QueryBlock& block, const Tile& tile,
                                    OutputDone output_done) {
        to_scores<FIRST_STEP>(block, tile);
        normalizer.online_softmax_step(scores);
        exponentiate(normalizer);
        to_operands(output_done);
        normalizer.rescale_rows(out);
    }

    /// Every tile after the first, and earlier output relative to its maxima. Under a mask, old maxima stay if all rows
    /// have one: they may have no key here either.
    template <class OutputDone>
    DEVICE void next_tile(Normalizer<1>& normalizer, QueryBlock& block, const Tile& tile, OutputDone output_done) {
        bool lost = full(tile) && whole.serves(block, scores);
        if (lost && try_stale_max(normalizer, block, output_done)) return;
        bool may_keep_max = !full(tile), keeps_max;
        while (true) {
            if (lost) multiply_again();
            to_scores(block, tile);
            keeps_max = may_keep_max && normalizer.has_max();
            if (keeps_max) {
                normalizer.to_exponents(scores);
                normalizer.keep_max();
            } else {
                normalizer.online_softmax_step(scores);
            }
            exponentiate(normalizer);
            if (!keeps_max || normalizer.max_still_valid(STALE_MAX_LIMIT)) break;
            lost = true;
            may_keep_max = false;
        }
        to_operands(output_done);
        if (!keeps_max) normalizer.rescale_rows(out);
    }
    /// Zeros in place of the values behind the last key, where rows follow it; they are in the first tile, if anywhere.
    DEVICE void clear_beyond(const QueryBlock& block, const Tile& tile) {
        const int rows = block.context.kv_len - tile.kv_first;
        if (rows >= BLOCK_KV || !rows_follow_keys(params)) return;
        barrier_wait(shared.values_full(values.stage), values.parity);
        clear_rows<VTile, THREADS>(shared.values(values.stage), rows);
    }

    /// Where a stage's tile info for the warpgroup is, whose index takes no register.
    DEVICE unsigned own_tile_info() const { return shared.tile_info_at(keys.stage, thread_index() / 128); }

    /// Beside the products.
    DEVICE void prepare_mask(const QueryBlock& block, const Tile& tile) {
        if (!full(tile)) mask.prepare(block, tile.kv_first);
    }

    /// The products of a tile to scores; pairs are tested for STEP column tiles at once.
    template <int STEP = N_TILES> DEVICE void to_scores(const QueryBlock& block, const Tile& tile) {
        if (!full(tile)) mask.apply<STEP>(block, tile.kv_first, scores);
    }

    DEVICE void pass_by_values() {
        barrier_wait(shared.values_full(values.stage), values.parity);
        release_values();
    }

    /// The first tile of a run, which no output overlaps.
    DEVICE void first_tile(QueryBlock& block, Normalizer<1>& normalizer, const Tile& tile) {
        // FlashAttention-3, Algorithm 2, lines 3 and 4: S = Q K^T of the first tile.
        start_scores(block, tile);
        prepare_mask(block, tile);
        wgmma_wait<0>(scores);
        // FlashAttention-3, Algorithm 2, lines 5 and 6: m, P and l; K is released.
        online_softmax_step(normalizer, block, tile, [] {});
        normalizer.end_tile();
        release_keys();
    }

    /// Tiles that follow the one in hand without a gap, up to the last one; its output is still to be made.
    DEVICE void next_tiles(QueryBlock& block, Normalizer<1>& normalizer, TileInfo& info) {
        while (!info.last && !info.gap) {
            // FlashAttention-3, Algorithm 2, lines 7 to 9: for each further tile, S_next = Q K^T, not waited for.
            const int before = info.tile.kv_first;
            info = read_next_tile_info();
            start_scores(block, info.tile);
            // FlashAttention-3, Algorithm 2, lines 10 and 11: O += P V of the tile before, not waited for.
            start_output(block, before);
            prepare_mask(block, info.tile);
            // FlashAttention-3, Algorithm 2, line 12: wait for S_next.
            wgmma_wait<1>(scores);
            // FlashAttention-3, Algorithm 2, lines 13 and 14: m, P and l of S_next; wait for P V, then rescale O.
            next_tile(normalizer, block, info.tile, [&] { wgmma_wait<0>(out); });
            normalizer.end_tile();
            // FlashAttention-3, Algorithm 2, line 15: K and V are released.
            release_values();
            release_keys();
        }
    }

    /// The tiles of a block of queries, the first of which is in hand.
    DEVICE void attend(QueryBlock& block, Normalizer<1>& normalizer, TileInfo info) {
        // Runs of tiles that follow each other. One ends at a tile to pass by: the producer may wait for that before.
        for (;; info = read_next_tile_info()) {
            const bool passed_by = info.tile.kind == EMPTY;
            if (passed_by)
                release_keys();
            else
                first_tile(block, normalizer, info.tile);
            clear_beyond(block, info.tile);
            if (!passed_by) next_tiles(block, normalizer, info);
            if (info.last) warp_arrive(shared.queries_empty(warpgroup));
            if (passed_by) {
                pass_by_values();
            } else {
                // FlashAttention-3, Algorithm 2, lines 18 and 19: O += P V of the last tile.
                start_output(block, info.tile.kv_first);
                wgmma_wait<0>(out);
                release_values();
            }
            if (info.last) return;
        }
    }
    DEVICE void work_on(TileInfo info) {
        const unsigned turn = 1 - queries_parity;
        barrier_wait(shared.queries_full(warpgroup), queries_parity);
        queries_parity ^= 1;
        const Plan plan = shared.read_plan_of(warpgroup, turn);
        const Context context = context_of(params, plan);
        QueryBlock block(params, context, Rows(params, plan.work));
        place(info);
        if (info.loaded) block.magnitude = take_sign<Dtype, QTile>(queries.address, context.scale, warpgroup);
        // FlashAttention-3, Algorithm 2, line 2: O = 0, l = 0, m = -inf.
        Normalizer<1> normalizer(block.magnitude);
        UNROLL for (int i = 0; i < 4 * D_TILES; ++i) out[0][i / 4][i % 4] = 0;
        auto sink = [&](int m, int r) { return NEGATIVE_INFINITY; };
        auto out_scale = [&](const Work& done) { return length_holds(params, done.sequence); };
        if (info.loaded) {
            attend(block, normalizer, info);
        } else {
            release_keys();
            warp_arrive(shared.queries_empty(warpgroup));
        }
        // Read again, not kept: the loop needs the registers.
        const Work done = shared.read_work(warpgroup, turn);
        const Finished finished(normalizer, sink, out_scale(done));
        const Rows rows(params, done);
        if (params.partial_out != nullptr) return finished.store_partial(params, rows, block.warp_row, out);
        // FlashAttention-3, Algorithm 2, line 20: O = O / l, lse = m + log(l); write both.
        finished.store(params, rows, block.warp_row, out);
    }

    DEVICE void run() {
        clear_other_rows<QTile>(params, queries.address, warpgroup);
        for (TileInfo info = read_tile_info(); !info.end; info = read_tile_info()) work_on(info);
    }
};
// ---------------------------------------------------------------- the kernel

/// FlashAttention-3, Algorithms 1 and 2: one warp plans, one loads by TMA, warpgroups of 64 rows each do the rest.
extern "C" __global__ void __launch_bounds__(THREADS + 128, 1)
    causal_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
             const __grid_constant__ TensorMap v_map, const __grid_constant__ Params params) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Shared shared(shared_address(memory));
    let_others_begin();  // the combine kernel, which waits for all of this one
    // FlashAttention-3, Algorithm 1, line 1: the barriers of the ring of stages.
    if (threadIdx.x == 0) shared.init(4 * WARPGROUPS);
    if (threadIdx.x == THREADS) {
        tma_prefetch(q_map);
        tma_prefetch(k_map);
        tma_prefetch(v_map);
    }
    __syncthreads();
    const int warp = uniform(threadIdx.x / 32), warpgroup = uniform(threadIdx.x / 128);
    if (warpgroup == WARPGROUPS) {
        // FlashAttention-3, Algorithm 1, lines 2 and 3: the producer warpgroup gives registers away.
        give_registers<32>();
        if (warp == WARPS) {
            Producer producer = {params, k_map, v_map, shared, {params, q_map, shared}};
            producer.run();
        }
        if (warp == WARPS + 1) plan_blocks(params, shared);
        if (warp == WARPS + 2) {
            QueryLoader queries = {params, q_map, shared};
            queries.run();
        }
    } else {
        // FlashAttention-3, Algorithm 1, lines 11 and 12: the consumer warpgroups take them.
        take_registers<232>();
        Consumer consumer(params, shared, warpgroup);
        consumer.run();
    }
}
