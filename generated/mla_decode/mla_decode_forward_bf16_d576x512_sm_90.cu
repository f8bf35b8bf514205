// mla_decode, forward pass: bf16, head dim 576, of values 512, for sm_90.
// Written by attncc 0.2.0 from specs/mla_decode.attn (sha256 74e1db38a5139f3e). Do not edit.
//
// Contents, by line:
//    57  sizes
//    70  leaf code: element.cuh 72, math.cuh 76, bf16.cuh 160, running_max.cuh 183, softmax_rows.cuh 210,
//        normalize_softmax.cuh 277, keep_all.cuh 290, tiles_1d.cuh 297, grid.cuh 318, keys_in_rows.cuh 384,
//        output.cuh 390, group_rows.cuh 494, key_bits.cuh 587, rotation.cuh 602, scores.cuh 612, tile_kind.cuh 656,
//        tiles.cuh 660
//   747  mla_decode: Params 749, Context 764, make_context 772, Row 780, make_row 784, keep_bits 793, KvBounds 801,
//        kv_bounds 805
//   814  a block of queries
//   915  leaf code of wide heads: layout.cuh 917, copy.cuh 973, words.cuh 1035, queries.cuh 1048, stream_k.cuh 1062,
//        one_team.cuh 1161, kv_rows.cuh 1173, source_rows.cuh 1192, kv_stream.cuh 1211, arrivals.cuh 1304,
//        merge_rows.cuh 1320, partial_results.cuh 1427, merge_pieces.cuh 1499, load_rows.cuh 1592, latents.cuh 1613,
//        row_exchange.cuh 1620, lanes.cuh 1695, load_matrices.cuh 1703, mma_16bit.cuh 1714, column_slices.cuh 1750
//  1321    Flash-Decoding, step 3, for parts whose rows are in shared memory: of other keys, O normalised, m and l. ...
//  1842  items, and the units that they have
//  1962  the keys of a tile of Q
//  2006  how warps share a tile
//  2040  one part of an item
//  2049    FlashAttention-2, Algorithm 1, line 8: S = Q K^T. The columns of a panel in each round of a loop.
//  2065    FlashAttention-2, Algorithm 1, line 4: load Q, with the first tile of K and V.
//  2095    FlashAttention-2, Algorithm 1, lines 6 and 7: for each tile of K and V.
//  2106    FlashAttention-2, Algorithm 1, line 9: m, where a row needs a new one; with it O is rescaled, line 10.
//  2118    FlashAttention-2, Algorithm 1, lines 9 and 10: P = exp(S - m), l += rowsum(P).
//  2126    FlashAttention-2, Algorithm 1, line 10: O += P V, of the warp's columns.
//  2137  parts of an item
//  2207  the kernel
//  2213    Flash-Decoding, step 1, as in LeanAttention: this thread block's run of the units of all items.
//  2250    FlashAttention-2, Algorithm 1, lines 12 to 15; or Flash-Decoding, step 2.
//
// Decoding with multi-head latent attention in its absorbed form (DeepSeek-V2, section 2.1). The cache has one row for
// each key: 512 latents, and 64 columns with rotary embeddings. All query heads share it. K is the whole row, and V is
// its latents: `kernel(q, cache, cache[..., :512])`, built with `--head-dim 576:512`. Each row is then loaded once. The
// scale is that of a head before absorption, which has 128 + 64 columns. Causal.
//
// variant mla_decode
//   const columns = 192
//   keep if causal()
//   scale 1 / sqrt(columns)
//
// schedule
//   family = wide, loop = q_outer, block_q = 64, block_kv = 64,
//   stages = 1, warps = 8, split_kv = auto, skip = auto
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

constexpr int BLOCK_Q = 64, BLOCK_KV = 64, WARPS = 8;
[[maybe_unused]] constexpr int STAGES = 1;
[[maybe_unused]] constexpr int HEAD_DIM = 576, PADDED_HEAD_DIM = 576;
constexpr int VALUE_HEAD_DIM = 512, PADDED_VALUE_HEAD_DIM = 512;

[[maybe_unused]] constexpr int THREADS = 32 * WARPS;
constexpr int WARP_ROWS = 16, M_TILES = WARP_ROWS / 16;  // the rows of a warp; in tiles of 16
[[maybe_unused]] constexpr int WARP_KEYS = 32;  // of a tile, that a warp works on at once
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

/// log2(x), x not below 2^-126: one instruction, 2^-22 of the result, or of 1 where x is near 1.
DEVICE float log2_approximate(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
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

    /// A row's state as it is kept in memory: its maximum (-inf: none) and sum.
    DEVICE void load_row(int m, int r, float row_max, float sum) {
        offset[m][r] = sum > 0 ? -row_max : 0.0f;
        row_sum[m][r] = threadIdx.x % 4 == 0 ? sum : 0.0f;
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

/// What is known of a work's sequence: all lanes of the warp have the same work. (stream_k.cuh has works of lanes.)
template <class AnyWork> DEVICE int agreed(const AnyWork&, int x) { return uniform(x); }

/// Where a sequence starts and how long it is: all of the tensor in a dense batch.
template <class AnyWork>
DEVICE void find_span(const AnyWork& work, int& start, int& length, const int* cu_seqlens, int sequence, int total) {
    int first = 0, last = total;
    if (cu_seqlens != nullptr) {
        first = sequence_start(cu_seqlens, sequence, total);
        last = sequence_start(cu_seqlens, sequence + 1, total);
    }
    start = agreed(work, first);
    length = agreed(work, max(last - first, 0));
}

/// The rows and the keys of the sequence that `work` names. In a cache, with room for more, `kv_lens` says how many.
template <class AnyWork, class Params> DEVICE void find_rows(AnyWork& work, const Params& params) {
    find_span(work, work.q_start, work.q_len, params.cu_seqlens_q, work.sequence, params.q_len);
    find_span(work, work.kv_start, work.kv_len, params.cu_seqlens_kv, work.sequence, params.kv_len);
    int length = work.kv_len;
    if (params.kv_lens != nullptr) length = min(max(__ldg(params.kv_lens + work.sequence), 0), length);
    work.kv_len = agreed(work, length);  // not in the branch: no value is agreed upon under a predicate
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

// ---- keys_in_rows.cuh
/// What the results of a sequence are multiplied by: NaN where its length can't be. See keys_in_pages.cuh for the other way.
template <class Params> DEVICE float keys_hold(const Params& params, int sequence, int, int = 0) {
    return length_holds(params, sequence);
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

DEVICE void store_vector(void* target, const unsigned (&x)[2]) {
    *static_cast<uint2*>(target) = make_uint2(x[0], x[1]);
}

DEVICE void store_vector(void* target, const unsigned (&x)[4]) {
    *static_cast<uint4*>(target) = make_uint4(x[0], x[1], x[2], x[3]);
}

/// Stores four neighbouring columns.
template <class Stored> DEVICE void store_four(typename Stored::Element* target, float4 x) {
    unsigned low[Stored::WORDS], high[Stored::WORDS], all[2 * Stored::WORDS];
    Stored::words(low, x.x, x.y);
    Stored::words(high, x.z, x.w);
#pragma unroll
    for (int word = 0; word < Stored::WORDS; ++word) all[word] = low[word], all[Stored::WORDS + word] = high[word];
    store_vector(target, all);
}

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

// ---- group_rows.cuh
/// n / d of numbers below 2^16, by one instruction for the reciprocal.
DEVICE int small_quotient(int n, int d) { return (int)((n + 0.5f) * fast_reciprocal((float)d)); }

/// Which rows of a sequence and key head a tile has: row i is query i / group, of head i % group among them.
struct GroupSlots {
    int group;         // query heads for each key head
    unsigned inverse;  // ceil(2^32 / group): a multiplication in place of a division, exact below 2^16
    int first, past;   // the query of slot 0, and how many rows of that query are before the tile
    int count;         // slots that have a row, of all from the tile's first on

    DEVICE bool holds(int slot) const { return slot < count; }

    DEVICE int q_idx(int slot) const { return first + (group == 1 ? slot : (int)__umulhi(past + slot, inverse)); }

    DEVICE int of_group(int slot, int q_idx) const { return past + slot - (q_idx - first) * group; }
};

/// Rows of a group as they stand in a tensor: `target` is query 0 of the group's first head, strides are in elements.
template <class Element> struct GroupPlaces {
    Element* target;
    long long head_stride, row_stride;
    GroupSlots slots;

    DEVICE bool holds(int slot) const { return slots.holds(slot); }

    DEVICE long long offset(int slot) const {
        const int q_idx = slots.q_idx(slot);
        return slots.of_group(slot, q_idx) * head_stride + q_idx * row_stride;
    }
};

/// The rows of a tile of Q: those of all query heads that share a key head, so that its keys and values are loaded once for
/// them.
template <class Order> struct QueryRows {
    const Work& work;  // its head is a key head
    GroupSlots slots;
    int first, last;   // q_idx

    template <class Params> DEVICE QueryRows(const Params& params, const Work& work) : work(work) {
        const int base = work.q_block * Order::BLOCK;
        first = base == 0 ? 0 : base / params.group;
        slots = {params.group, params.group_inverse, first, base - first * params.group, work.q_len * params.group - base};
        last = q_idx(tile_rows() - 1);
    }

    DEVICE int q_idx(int slot) const { return slots.q_idx(slot); }
    DEVICE int head_of(int slot) const { return head() + slots.of_group(slot, q_idx(slot)); }

    /// How many there are in the tile.
    DEVICE int tile_rows() const { return min(Order::BLOCK, slots.count); }

    /// How many warps it takes to hold them, of WARP_ROWS each. Others have the same rows, and work on other keys.
    template <int WARP_ROWS> DEVICE int row_warps() const {
        return (unsigned)(tile_rows() + WARP_ROWS - 1) / WARP_ROWS;
    }

    /// The first slot of the calling warp's rows.
    template <int WARP_ROWS> DEVICE int warp_slot() const {
        const int warp = threadIdx.x / 32, warps = row_warps<WARP_ROWS>();
        return (warp - small_quotient(warp, warps) * warps) * WARP_ROWS;
    }

    /// The first of the group.
    DEVICE int head() const { return work.head * slots.group; }

    /// Where the rows stand in a tensor with these strides, in elements.
    template <class Element>
    DEVICE GroupPlaces<Element> places(Element* tensor, long long batch_stride, long long head_stride,
                                       long long row_stride) const {
        Element* target = tensor + work.batch_index * batch_stride + head() * head_stride + work.q_start * row_stride;
        return {target, head_stride, row_stride, slots};
    }
};

/// What a lane knows of its rows.
template <class Order, int M_TILES> struct LaneRows {
    int q_first, q_last;  // of the block
    int q[M_TILES][2], heads[M_TILES][2];

    DEVICE LaneRows(const QueryRows<Order>& rows, int slot) : q_first(rows.first), q_last(rows.last) {
        const int lane = opaque(threadIdx.x) % 32;  // not kept over a loop over items
        UNROLL for (int i = 0; i < 2 * M_TILES; ++i) {
            const int row = min(slot + lane / 4 + 8 * i, rows.slots.count - 1);
            q[i / 2][i % 2] = rows.q_idx(row);
            heads[i / 2][i % 2] = rows.head_of(row);
        }
    }

    DEVICE int q_idx(int m, int r) const { return q[m][r]; }
    DEVICE int head(int m, int r) const { return heads[m][r]; }
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

    /// What it keeps of the tile that begins with this slot.
    template <int BLOCK> DEVICE TileKind kind_at(int slot) const {
        const bool meets = (slot < end) & (slot + BLOCK > begin), full = (slot >= full_begin) & (slot + BLOCK <= full_end);
        return (TileKind)(meets * (PARTIAL + full));
    }
};

/// A range from a multiple of BLOCK on.
template <int BLOCK> DEVICE TileRange aligned(TileRange range) {
    range.begin = range.begin / BLOCK * BLOCK;
    return range;
}

/// One of `splits` equal shares of the range, in whole tiles.
template <int BLOCK_KV> DEVICE TileRange share(TileRange range, int split, int splits) {
    const int first = range.begin / BLOCK_KV, tiles = max((range.end + BLOCK_KV - 1) / BLOCK_KV - first, 0);
    const int size = (tiles + splits - 1) / splits;
    range.begin = max(range.begin, (first + split * size) * BLOCK_KV);
    range.end = min(range.end, (first + (split + 1) * size) * BLOCK_KV);
    return range;
}

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

// ---------------------------------------------------------------- mla_decode

struct Params {
    const bf16 *q, *k, *v;
    bf16 *out;
    float *lse, *partial_out, *row_max, *row_sum;
    unsigned *arrivals;
    const int *cu_seqlens_q, *cu_seqlens_kv, *kv_lens, *block_table, *q_offsets;
    long long q_stride_batch, q_stride_head, q_stride_row;
    long long k_stride_batch, k_stride_head, k_stride_row;
    long long v_stride_batch, v_stride_head, v_stride_row;
    long long out_stride_batch, out_stride_head, out_stride_row;
    int q_offset, q_offset_form, batch, num_heads, num_kv_heads, q_len, kv_len, slot_rows, group, few_units, fewer_runs;
    unsigned group_inverse;
    float most_parts, scale;
};

struct Context {
    int b, h, kv_h;
    int q_len, kv_len;  // of this sequence
    int q_start, kv_start;  // its first rows in a packed batch, 0 in a dense one
    int q_offset;  // q_pos - q_idx
    float scale;
};

template <class AnyWork> DEVICE Context make_context(const Params& params, const AnyWork& work, int h, int kv_h) {
    Context ctx = {work.sequence, h, kv_h, work.q_len, work.kv_len, work.q_start, work.kv_start,
        query_offset(params, work), params.scale};
    // NaN: the call gives no scale.
    if (params.scale != params.scale) ctx.scale = 1.0f / sqrtf(192.0f);
    return ctx;
}

struct Row {
    int q_idx, h, q_pos;
};

DEVICE Row make_row(const Params& params, const Context& ctx, int q_idx, int h) {
    Row row = {q_idx, h};
#line 13 "specs/mla_decode.attn"
    row.q_pos = row.q_idx + ctx.q_offset;
#line 789 "mla_decode_forward_bf16_d576x512_sm_90.cu"
    return row;
}

// keep if causal()
DEVICE unsigned keep_bits(const Params& params, const Context& ctx, const Row& row, int kv_idx) {
#line 13 "specs/mla_decode.attn"
    return bits_below(row.q_pos + 1 - kv_idx);
#line 797 "mla_decode_forward_bf16_d576x512_sm_90.cu"
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
    DEVICE Row row(int m, int r) const {
        return make_row(params, context, lane_rows.q_idx(m, r), lane_rows.head(m, r));
    }

    DEVICE void make_rows(Row (&rows)[M_TILES][2]) const {
        UNROLL for (int i = 0; i < 2 * M_TILES; ++i) rows[i / 2][i % 2] = row(i / 2, i % 2);
    }

    /// Natural units in one unit of the scores; score lines have made them natural.
    DEVICE float unit() const { return magnitude; }

    /// The logit that takes part in the normaliser of a row alone, in natural units. `row_of()`: that row.
    template <class RowOf> DEVICE float sink_of(RowOf row_of) const { return NEGATIVE_INFINITY; }

    /// The same of a row of the lane.
    DEVICE float sink_at(int m, int r) const {
        return sink_of([&] { return row(m, r); });
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

    /// Where the rows of a block stand in an array like lse: of fp32, `width` of them a row.
    static DEVICE auto results(const Params& params, const Rows& rows, float* array, int width) {
        return rows.places(array, (long long)params.num_heads * params.q_len * width, (long long)params.q_len * width, width);
    }
};
// ---------------------------------------------------------------- leaf code of wide heads

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

// ---- stream_k.cuh
// Work shared out by units that all take alike long (Stream-K, Osama et al. 2023, Algorithm 5; for attention LeanAttention, Sanovar
// et al. 2024, section 4): the units of all items, laid out one after the other, are cut into equal runs, one for each thread
// block, whatever item they are of. Each warp finds its block's run for itself, so that no barrier stands before the first loads.

/// How many runs there are of `total` units: at most sqrt(total most_parts), so that merging what cut items have in parts takes no
/// longer than it spares: with n units an item, of which a block merges r rows, and items = total / n, most_parts = items / (c r). Of
/// fewer units than `few` there are at most `fewer` runs: one for each multiprocessor, which bring them as fast, and leave fewer parts.
DEVICE int count_runs(int total, float most_parts, int few, int fewer) {
    const float bound = exp2_flushed(0.5f * log2_approximate(fmaxf(total * most_parts, 1.0f)));
    const int blocks = total < few ? min((int)gridDim.x, fewer) : gridDim.x;
    return max(min(min(blocks, total), (int)fminf(bound, 1e6f)), 1);
}

/// All runs: of `size` units, but for the first `longer` ones, which have one more.
struct Runs {
    int size, longer;

    Runs() = default;

    DEVICE Runs(int total, int count) : size(total / count), longer(total - size * count) {}

    DEVICE int begin(int block) const { return block * size + min(block, longer); }

    /// The thread block whose run a unit is in.
    DEVICE int owner(int unit) const {
        const int in_longer = longer * (size + 1);
        return unit < in_longer ? unit / (size + 1) : longer + (unit - in_longer) / size;
    }
};

/// The thread blocks whose runs have units of an item.
struct Owners {
    int first, count;

    Owners() = default;

    template <class AnyRuns>
    DEVICE Owners(const AnyRuns& runs, int first_unit, int units)
        : first(runs.owner(first_unit)), count(runs.owner(first_unit + units - 1) - first + 1) {}
};

/// Of sequences that differ from lane to lane: what `find_rows` finds is the lane's own.
struct LaneWork : Work {};

DEVICE int agreed(const LaneWork&, int x) { return x; }

/// The sum of x over all lanes up to this one.
DEVICE int running_sum(int x) {
    const int lane = threadIdx.x % 32;
    UNROLL for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_up_sync(~0u, x, distance);
        x += lane >= distance ? before : 0;
    }
    return x;
}

/// The units of all sequences, of which `units_of` tells of each: a lane has the sums of some that follow each other.
template <class UnitsOf> struct SequenceUnits {
    UnitsOf units_of;
    int sequences, each;  // how many there are, and how many a lane has
    int end;              // the first unit behind the lane's
    int last;             // the units of the last of these; 0: there are none
    bool same = true;     // whether all of these have as many

    DEVICE SequenceUnits(int sequences, UnitsOf units_of)
        : units_of(units_of), sequences(sequences), each((sequences + 31) / 32), last(0) {
        const int first = threadIdx.x % 32 * each;
        int units = 0;
        NO_UNROLL for (int sequence = first; sequence < min(first + each, sequences); ++sequence) {
            const int own = units_of(sequence);
            same &= sequence == first || own == last;
            last = own;
            units += own;
        }
        end = running_sum(units);
    }

    DEVICE int total() const { return __shfl_sync(~0u, end, 31); }

    /// The sequence that a unit is of; `first` becomes that one's first unit.
    DEVICE int find(int unit, int& first) const {
        const int lane = __popc(__ballot_sync(~0u, end <= unit));
        const int before = __shfl_sync(~0u, end, max(lane - 1, 0));
        first = lane == 0 ? 0 : before;
        int sequence = lane * each;
        // 32 of that lane's at a time; of few sequences it has one.
        for (int left = each; left > 1; left -= 32, sequence += 32) {
            const int own = threadIdx.x % 32;
            const int units = own < left && sequence + own < sequences ? units_of(sequence + own) : 0;
            const int upto = running_sum(units), passed = __popc(__ballot_sync(~0u, first + upto <= unit));
            const int ahead = __shfl_sync(~0u, upto, max(min(passed, 32) - 1, 0));
            first += passed == 0 ? 0 : ahead;
            if (passed < 32) return sequence + passed;
        }
        return sequence;
    }
};

// ---- one_team.cuh
/// Thread blocks that share out items among themselves: all of them, and all blocks of rows. Kernels of wide heads on Hopper have
/// others (hopper_wide/teams.cuh).
struct Team {
    static constexpr int first_q_block = 0;

    DEVICE int q_blocks_end(int all) const { return all; }

    /// How many units an item of so many has.
    DEVICE int rounded(int units) const { return units; }
};

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

// ---- source_rows.cuh
/// Where tiles of K and V come from, as KvStream asks for them; of latents, which are both, those of K alone.
template <bool LATENTS> struct KvSource {
    const KvRows& kv;
    int kv_len;

    DEVICE explicit KvSource(const KvRows& kv) : kv(kv), kv_len(kv.kv_len) {}

    template <class Tile, class Order, int THREADS, int BYTES>
    DEVICE void load_keys(unsigned target, int first, int count) const {
        kv.load_keys<Tile, Order, THREADS, BYTES>(target, first, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    DEVICE void load_values(unsigned target, int first, int count) const {
        if constexpr (!LATENTS) kv.load_values<Tile, Order, THREADS, BYTES>(target, first, count);
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

// ---- arrivals.cuh
// A counter of thread blocks that have come to merge what they found.

/// atomicAdd. What the block has written before its last barrier is there for whoever counts later, and the other way round.
DEVICE unsigned count_more(unsigned* counter, unsigned more) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(more) : "memory");
    return before;
}

DEVICE unsigned counted(const unsigned* counter) {
    unsigned count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}

// ---- merge_rows.cuh
// Flash-Decoding, step 3, for parts whose rows are in shared memory: of other keys, O normalised, m and l. O, the sum of the parts' rows,
// each weighted by its share of l, goes to `results.store(row, column, four columns)`, m and l to `results.store_row(row, m, l)`.
// `results.sink(row)`: a logit that takes part in l alone.

/// Rows of partial results: one for each row of a tile of Q.
struct SlotRows {
    float* target;
    int width, count;

    DEVICE bool holds(int row) const { return row < count; }
    DEVICE long long offset(int row) const { return (long long)row * width; }
};

/// How rows of parts lie there while they are merged: O of `parts` parts at once, [part, row, column]; m and l, or in place of m the
/// weights, of all parts, [row, part].
template <int COLUMNS> struct MergeRoom {
    static constexpr int PITCH = COLUMNS + 8;  // lanes that write their pieces of 4 rows meet no bank twice

    float *out, *weights, *sums;
    int rows, parts;

    /// For all of them.
    DEVICE MergeRoom(float* shared, int rows, int parts, int all_parts)
        : out(shared), weights(shared + rows * parts * PITCH), sums(weights + rows * all_parts), rows(rows), parts(parts) {}

    /// In `floats` floats: whole rows of all parts, as many as there is room for; or one, of some parts at once.
    static DEVICE MergeRoom within(float* shared, int floats, int all_rows, int all_parts) {
        const int rows = max(min(all_rows, small_quotient(floats, all_parts * (PITCH + 2))), 1);
        return MergeRoom(shared, rows, min(small_quotient(floats - 2 * rows * all_parts, rows * PITCH), all_parts), all_parts);
    }

    /// Where a row stands, while there are `count` of each part.
    DEVICE float* row(int part, int row, int count) const { return out + (part * count + row) * PITCH; }

    DEVICE int part_bytes(int count) const { return count * PITCH * (int)sizeof(float); }
};

/// The share of each part in l, for rows [from, from + rows), no more than threads: to `room.weights`, where m is. All threads must call.
template <int THREADS, class Room, class Results>
DEVICE void weigh_rows(const Room& room, int count, int begin, int from, int rows, const Results& results) {
    // Lanes that share a row. All lanes go as often through the loops in which they exchange values.
    int shift = 3;
    while (rows << shift > THREADS) --shift;
    const int lanes = 1 << shift, row = threadIdx.x >> shift, lane = threadIdx.x & (lanes - 1), parts = row < rows ? count : 0;
    float *const weights = room.weights + (from + row) * count, *const sums = room.sums + (from + row) * count;
    const float logit = row < rows ? results.sink(begin + from + row) : NEGATIVE_INFINITY;
    float top = logit, sum = 0;
    NO_UNROLL for (int part = lane; part < parts; part += lanes) top = fmaxf(top, weights[part]);
#pragma unroll 1
    for (int distance = 1; distance < lanes; distance *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
    const float base = top == NEGATIVE_INFINITY ? 0.0f : top;  // of a row without keys all weigh 0
    NO_UNROLL for (int part = lane; part < parts; part += lanes) {
        weights[part] = expf(weights[part] - base) * sums[part];
        sum += weights[part];
    }
    NO_UNROLL for (int distance = 1; distance < lanes; distance *= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    sum += logit == NEGATIVE_INFINITY ? 0.0f : expf(logit - base);
    const float factor = sum == 0 ? 0.0f : normal_reciprocal(sum);
    // Here and not after the sums: where one part alone has met keys, its share is 1, and its row stays as it is.
    NO_UNROLL for (int part = lane; part < parts; part += lanes) weights[part] *= factor;
    if (row < rows && lane == 0) results.store_row(begin + from + row, top, sum);
}

/// Of all rows, which are up to 64.
template <int THREADS, class Room, class Results>
DEVICE void weigh_parts(const Room& room, int count, int begin, int rows, const Results& results) {
    if constexpr (THREADS >= 64) {
        weigh_rows<THREADS>(room, count, begin, 0, rows, results);
    } else {
#pragma unroll 1
        for (int from = 0; from < rows; from += THREADS) weigh_rows<THREADS>(room, count, begin, from, min(rows - from, THREADS), results);
    }
}

/// Fours of columns of a row that a thread has.
template <int THREADS, int COLUMNS> constexpr int FOURS = (COLUMNS / 4 + THREADS - 1) / THREADS;

/// O: adds rows of parts [first, end), each times its weight, to what a thread has of earlier ones; behind the last it stores them, four
/// columns at a time. Parts are there one after the other of one row alone: of several, all are there at once.
template <int THREADS, int COLUMNS, class Results>
DEVICE void add_parts(const MergeRoom<COLUMNS>& room, int count, int first, int end, int begin, int rows,
                      float4 (&sums)[FOURS<THREADS, COLUMNS>], const Results& results) {
    constexpr int QUADS = COLUMNS / 4, STEP = FOURS<THREADS, COLUMNS> * THREADS;
    NO_UNROLL for (int at = threadIdx.x; at < rows * QUADS; at += STEP) {
        UNROLL for (int i = 0; i < FOURS<THREADS, COLUMNS>; ++i) {
            const int quad = at + i * THREADS, row = quad / QUADS, column = quad % QUADS * 4;
            if (i > 0 && quad >= rows * QUADS) break;
            const float* weight = room.weights + row * count;
            const float* item = room.row(0, row, rows) + column;
            float4& sum = sums[i];
#pragma unroll 4
            for (int part = first; part < end; ++part, item += rows * room.PITCH) {
                const float4 x = *(const float4*)item;
                sum.x = fmaf(weight[part], x.x, sum.x);
                sum.y = fmaf(weight[part], x.y, sum.y);
                sum.z = fmaf(weight[part], x.z, sum.z);
                sum.w = fmaf(weight[part], x.w, sum.w);
            }
            if (end == count) {
                results.store(begin + row, column, sum);
                sum = {};
            }
        }
    }
}

// ---- partial_results.cuh
// What thread blocks find of an item that several of them have parts of (Flash-Decoding, steps 2 and 3), merged by the one that
// comes last (LeanAttention, Algorithm 2; as Stream-K's fix-up). All is in fp32. Parts are merged in their order, whoever merges them.

/// The parts of an item: O normalised [slot, row, column], m and l [slot, row], for up to `slot_rows` rows a slot. Without a softmax
/// `row_max` is null, and parts just add up.
template <int COLUMNS> struct Parts {
    const float *out, *row_max, *row_sum;
    int slot_rows, count;
    int first, second, stride;  // slots: of the first part, of the second, and how far it is to the others

    /// Where row 0 of a part stands in an array of `width` columns, as far from the array's begin.
    DEVICE long long place(int part, int width) const {
        return (part == 0 ? first : second + (part - 1) * stride) * (long long)(slot_rows * width);
    }
};

/// Starts to load O of parts [first, end), rows [begin, begin + rows). Threads take the same columns of several parts.
template <int THREADS, int COLUMNS, class AnyParts>
DEVICE void load_parts(const MergeRoom<COLUMNS>& room, const AnyParts& parts, int first, int end, int begin, int rows) {
    constexpr int QUADS = COLUMNS / 4;
    const int quads = rows * QUADS, at_once = max(small_quotient(THREADS, quads), 1);
    const int own = small_quotient(threadIdx.x, quads);
    if (own < at_once) {
        NO_UNROLL for (int quad = threadIdx.x - own * quads; quad < quads; quad += THREADS) {
            const float* source = parts.out + (begin * QUADS + quad) * 4;
            const unsigned target = shared_address(room.row(0, quad / QUADS, rows) + quad % QUADS * 4);
#pragma unroll 4
            for (int part = first + own; part < end; part += at_once)
                copy_async(target + (part - first) * room.part_bytes(rows), source + parts.place(part, COLUMNS));
        }
    }
    copy_commit();
}

/// Loads m and l of all parts, rows [begin, begin + rows).
template <int THREADS, class Room, class AnyParts>
DEVICE void load_row_values(const Room& room, const AnyParts& parts, int begin, int rows) {
    NO_UNROLL for (int i = threadIdx.x; i < rows * parts.count; i += THREADS) {
        const int row = small_quotient(i, parts.count);
        const long long place = parts.place(i - row * parts.count, 1) + begin + row;
        room.weights[i] = parts.row_max == nullptr ? 1.0f : __ldcg(parts.row_max + place);
        room.sums[i] = parts.row_max == nullptr ? 1.0f : __ldcg(parts.row_sum + place);
    }
}

/// Merges rows [from, to) of all parts. `shared` has `room_floats` floats: all that fits is on its way at once, since one block alone
/// must bring it.
template <int THREADS, int COLUMNS, class AnyParts, class Results>
DEVICE void merge_parts(const AnyParts& parts, int from, int to, float* shared, int room_floats,
                        const Results& results) {
    const int count = parts.count;
    const MergeRoom<COLUMNS> room = MergeRoom<COLUMNS>::within(shared, room_floats, to - from, count);
    NO_UNROLL for (int begin = from; begin < to; begin += room.rows) {
        const int here = min(room.rows, to - begin);
        float4 sums[FOURS<THREADS, COLUMNS>] = {};
        NO_UNROLL for (int first = 0; first < count; first += room.parts) {
            const int end = min(first + room.parts, count);
            __syncthreads();  // all have left what was there
            load_parts<THREADS>(room, parts, first, end, begin, here);
            if (first == 0) {
                load_row_values<THREADS>(room, parts, begin, here);
                __syncthreads();
                if (parts.row_max != nullptr) weigh_parts<THREADS>(room, count, begin, here, results);
            }
            copy_wait<0>();
            __syncthreads();
            add_parts<THREADS>(room, count, first, end, begin, here, sums, results);
        }
    }
}

// ---- merge_pieces.cuh
// Who merges the rows of an item that several thread blocks have parts of (Flash-Decoding, step 3). One block would read many parts of
// many rows for long, so the rows are cut into pieces. A block that has nothing else to do waits until all have come, and then has a
// piece; the last one to come has those that nobody waits for. Nobody must wait: who goes away leaves the piece to the last one. So a
// launch goes on wherever its blocks get room. Who has which piece doesn't change bits.

/// What an item's counter counts, in one word: thread blocks that have come, those of them that wait, and in bits the pieces that were
/// left. It is 0 before the first one comes, and again since the last one came.
constexpr unsigned COME = 1, WAITS = 1 << 10, LEFT = 1 << 20;

/// atomicInc, otherwise as `count_more`.
DEVICE unsigned count_arrival(unsigned* counter, unsigned most) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(most) : "memory");
    return before;
}

/// atomicCAS, otherwise as `count_more`.
DEVICE unsigned change_count(unsigned* counter, unsigned from, unsigned to) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;" : "=r"(before) : "l"(counter), "r"(from), "r"(to) : "memory");
    return before;
}

/// Behind the count of the last one to come, by which whoever finds the 0 sees what all wrote (a release pattern of PTX's memory model).
DEVICE void end_count(unsigned* counter) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(counter), "r"(0) : "memory");
}

/// How the rows of an item are cut: into `count` pieces of `size` rows, but for the last one.
struct MergePieces {
    static constexpr int MOST = 8;
    // Rows of parts that a piece has at least. Who waits begins half a microsecond later than the last one: what a multiprocessor
    // reads in that time is no piece of its own.
    static constexpr int LEAST = 32;
    static constexpr int MOST_LOOKS = 100;  // of who waits, each about half a microsecond

    int size, count;

    MergePieces() = default;

    /// No more pieces than parts: one for each thread block.
    DEVICE MergePieces(int parts, int rows)
        : size(max((rows + MOST - 1) / MOST, small_quotient(max(rows, LEAST) + parts - 1, parts))),
          count(small_quotient(rows + size - 1, size)) {}

    /// The pieces that this thread block has, as bits, when it has come as one of `blocks`; it waits if it `may`. Then it sees what they
    /// wrote before they came. A block that is alone counts nothing: others may count with it for another item. All threads must call.
    DEVICE unsigned take(unsigned* counter, int blocks, bool may) const {
        __shared__ unsigned own;
        __syncthreads();
        if (threadIdx.x == 0) own = blocks == 1 ? (1u << count) - 1 : come(counter, blocks, may);
        __syncthreads();
        return own;
    }

    /// Behind the pieces from `first` on that `own` has one after the other; `first` if it hasn't that.
    static DEVICE int end(unsigned own, int first) { return first + __ffs(~(own >> first)) - 1; }

    /// The same, by one thread.
    DEVICE unsigned come(unsigned* counter, int blocks, bool may) const {
        if (count == 1) return count_arrival(counter, blocks - 1) == blocks - 1;  // nobody waits for the only piece
        const unsigned before = count_more(counter, may ? COME + WAITS : COME);
        if (before % WAITS == blocks - 1) {
            end_count(counter);
            return not_waited_for(before);
        }
        // The last one has piece 0, who waits the next ones.
        const int own = before / WAITS % WAITS + 1;
        return may && own < count && all_come(counter, blocks, LEFT << own) ? 1u << own : 0;
    }

private:
    DEVICE unsigned not_waited_for(unsigned before) const {
        const int waiting = min((int)(before / WAITS % WAITS), MOST);
        const unsigned all = (1u << count) - 1, waited_for = (2u << waiting) - 2, left = before / LEFT;
        return all & ~(waited_for & ~left);
    }

    /// Waits for that. If others come late, it goes away, unless the last one comes just then: the counter then has `left`.
    DEVICE bool all_come(unsigned* counter, int blocks, unsigned left) const {
        auto done = [&](unsigned come) { return come == 0 || come % WAITS == blocks; };
        unsigned come = counted(counter);
        NO_UNROLL for (int look = 1; look < MOST_LOOKS && !done(come); ++look) come = counted(counter);
        while (!done(come)) {
            const unsigned before = change_count(counter, come, come | left);
            if (before == come) return false;
            come = before;
        }
        return true;
    }
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

// ---- latents.cuh
/// Whether V is the first columns of K, as the latents of MLA are (DeepSeek-V2, section 2.1): the call tells, by where both are.
template <class Params> DEVICE bool values_are_keys(const Params& params) {
    return params.v == params.k && params.v_stride_batch == params.k_stride_batch && params.v_stride_head == params.k_stride_head &&
           params.v_stride_row == params.k_stride_row;
}

// ---- row_exchange.cuh
/// What warps tell each other of the rows of a tile of Q, through shared memory. Several groups of warps have the same rows and other
/// keys: they agree on one maximum of each row. All warps have columns of O of all rows: they learn by what to multiply them.
template <int ROWS, int GROUPS> struct RowExchange {
    float *peaks, *sums;  // [group, row]: the largest exponent of the tile in hand, and l
    float* factors;       // [row]

    DEVICE explicit RowExchange(float* shared)
        : peaks(shared), sums(shared + GROUPS * ROWS), factors(shared + 2 * GROUPS * ROWS) {}

    /// The row of the tile that the lane has as half r of 16 rows.
    static DEVICE int row_of(int first, int r) { return first + threadIdx.x % 32 / 4 + 8 * r; }

    /// Tells what a group has found of 16 rows. All lanes must call.
    template <class Normalizer, int N_TILES>
    DEVICE void put(int first, int group, const Normalizer& normalizer, const float (&exponents)[1][N_TILES][4]) const {
        UNROLL for (int r = 0; r < 2; ++r) {
            float peak = NEGATIVE_INFINITY;
#pragma unroll
            for (int n = 0; n < N_TILES; ++n) peak = fmaxf(peak, fmaxf(exponents[0][n][2 * r], exponents[0][n][2 * r + 1]));
            peak = quad_max(peak);
            if (threadIdx.x % 4 == 0) peaks[group * ROWS + row_of(first, r)] = peak;
        }
        put_sums(first, group, normalizer);
    }

    /// Normalizer::move of 16 rows, by what all groups have told. What O is to be multiplied by goes to `factors`.
    template <class Normalizer, int N_TILES>
    DEVICE void move(int first, Normalizer& normalizer, float (&exponents)[1][N_TILES][4]) const {
        UNROLL for (int r = 0; r < 2; ++r) {
            const int row = row_of(first, r);
            float peak = NEGATIVE_INFINITY;
            UNROLL for (int group = 0; group < GROUPS; ++group) peak = fmaxf(peak, peaks[group * ROWS + row]);
            const float sum = sum_of(row), excess = peak - Dtype::FIRST;
            const float step = sum > 0 ? fmaxf(excess, 0.0f) : peak > NEGATIVE_INFINITY ? excess : 0.0f;
            const float rescale = sum > 0 ? Dtype::power(-step) : 1.0f;
            normalizer.offset[0][r] -= step;
            normalizer.row_sum[0][r] = 0.25f / GROUPS * sum * rescale;  // a share for each lane that has the row
            UNROLL for (int n = 0; n < N_TILES; ++n) exponents[0][n][2 * r] -= step, exponents[0][n][2 * r + 1] -= step;
            if (threadIdx.x % 4 == 0) factors[row] = rescale;
        }
    }

    /// Tells l of 16 rows. All lanes must call.
    template <class Normalizer> DEVICE void put_sums(int first, int group, const Normalizer& normalizer) const {
        UNROLL for (int r = 0; r < 2; ++r) {
            const float sum = quad_sum(normalizer.row_sum[0][r]);
            if (threadIdx.x % 4 == 0) sums[group * ROWS + row_of(first, r)] = sum;
        }
    }

    /// l of 16 rows becomes that of all groups.
    template <class Normalizer> DEVICE void take_sums(int first, Normalizer& normalizer) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) normalizer.load_row(0, r, -normalizer.offset[0][r], sum_of(row_of(first, r)));
    }

    DEVICE void put_factors(int first, const float (&factor)[1][2]) const {
        UNROLL for (int r = 0; r < 2; ++r)
            if (threadIdx.x % 4 == 0) factors[row_of(first, r)] = factor[0][r];
    }

    template <int ROW_TILES> DEVICE void take_factors(float (&factor)[ROW_TILES][2]) const {
#pragma unroll
        for (int row = 0; row < 2 * ROW_TILES; ++row) factor[row / 2][row % 2] = factors[row_of(16 * (row / 2), row % 2)];
    }

private:
    DEVICE float sum_of(int row) const {
        float sum = 0;
        UNROLL for (int group = 0; group < GROUPS; ++group) sum += sums[group * ROWS + row];
        return sum;
    }
};

// ---- lanes.cuh
// Where lanes read the fragments of tiles in shared memory (mma_16bit.cuh).

/// Of a tile of Q, from `first_row` on.
template <class QTile> DEVICE typename QTile::Lane query_lane(unsigned queries, int first_row, int lane) {
    return QTile::lane(queries, first_row + lane % 16, lane / 16);
}

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

// ---- column_slices.cuh
// O += P V where each warp has columns of O, of all rows of the tile of Q: a slice of SLICE fragments of 8 columns. P comes from
// shared memory, where other warps have put it.

/// P of 16 rows, from `first_row` on, and of the keys that the warp has: to their place in the tile of P. `first_chunk`: of 8 keys, a
/// multiple of N_TILES. `to_probs` and `dropout` as multiply_probs_values has them.
template <class Dtype, class PTile, int N_TILES, class ToProbs, class Dropout>
DEVICE void put_probs(unsigned probs, int first_row, int first_chunk, float (&scores)[1][N_TILES][4], ToProbs to_probs,
                      Dropout& dropout) {
    static_assert((N_TILES & N_TILES - 1) == 0, "numbers of chunks are put together by XOR");
    const int lane = threadIdx.x % 32;
    const auto target = PTile::lane(probs + lane % 4 * 4, first_row + lane / 4, first_chunk);
    UNROLL for (int n = 0; n < N_TILES; n += 2) {
        unsigned words[4];
        UNROLL for (int half = 0; half < 2; ++half) {
            float(&x)[4] = scores[0][n + half];
            to_probs(0, x);
            words[2 * half] = Dtype::pack(x[0], x[1]);
            words[2 * half + 1] = Dtype::pack(x[2], x[3]);
        }
        UNROLL for (int i = 0; i < 4; ++i) store_word(PTile::at(target, i % 2 * 8, n + i / 2), words[i]);
    }
}

/// Where a lane reads V, transposed: 16 rows at a time, of the pairs of fragments from `first` on. Slices of whole panels take one
/// address, others one for each pair.
template <class VTile, int SLICE, int PAIRS> struct SliceLane {
    static constexpr bool PANELS = SLICE % 8 == 0;

    unsigned pairs[PANELS ? 1 : SLICE / 2];

    DEVICE SliceLane(unsigned values, int first) {
        const int lane = threadIdx.x % 32;
        UNROLL for (int d = 0; d < (PANELS ? 1 : SLICE / 2); ++d)
            pairs[d] = VTile::place(values, lane % 16, 2 * min(first + d, PAIRS - 1) + lane / 16).address;
    }

    DEVICE unsigned at(int step, int d) const {
        if constexpr (PANELS) return (pairs[0] ^ d % 4 * 32) + VTile::panel(d / 4 * 8) + step * 16 * 128;
        return pairs[PANELS ? 0 : d] + step * 16 * 128;
    }
};

/// out += P V: the columns of a warp's slice, which begins at pair `first` of fragments. V has COLUMNS columns, a multiple of 16, in
/// panels of 128 bytes.
template <class Dtype, class PTile, class VTile, int COLUMNS, int WARPS, int ROW_TILES, int SLICE>
DEVICE void multiply_slice(float (&out)[ROW_TILES][SLICE][4], unsigned probs, unsigned values, int first) {
    static_assert(VTile::WIDE_END == VTile::CHUNKS, "rows of a panel are 128 bytes apart");
    constexpr int PAIRS = COLUMNS / 16;
    constexpr bool WHOLE = WARPS * SLICE / 2 == PAIRS;  // all slices are
    const int lane = threadIdx.x % 32;
    const auto p_lane = PTile::lane(probs, lane % 16, lane / 16);
    const SliceLane<VTile, SLICE, PAIRS> v_lane(values, first);
    UNROLL for (int step = 0; step < PTile::CHUNKS / 2; ++step) {
        unsigned p[ROW_TILES][4];
        UNROLL for (int m = 0; m < ROW_TILES; ++m) load_matrices(p[m], PTile::at(p_lane, 16 * m, 2 * step));
        UNROLL for (int d = 0; d < SLICE / 2; ++d) {
            if (!WHOLE && first + d >= PAIRS) continue;
            unsigned v[4];
            load_matrices_transposed(v, v_lane.at(step, d));
            UNROLL for (int m = 0; m < ROW_TILES; ++m) {
                Dtype::mma(out[m][2 * d], p[m], v[0], v[1]);
                Dtype::mma(out[m][2 * d + 1], p[m], v[2], v[3]);
            }
        }
    }
}

/// O of all rows, each times its factor.
template <int ROW_TILES, int SLICE>
DEVICE void rescale_slice(float (&out)[ROW_TILES][SLICE][4], const float (&factor)[ROW_TILES][2]) {
#pragma unroll
    for (int i = 0; i < 4 * ROW_TILES * SLICE; ++i) out[i / 4 / SLICE][i / 4 % SLICE][i % 4] *= factor[i / 4 / SLICE][i % 4 / 2];
}

/// Stores a slice, as store_rows does: where `places` says, from pair `first` of fragments on; of COLUMNS columns in all.
template <class Stored, int COLUMNS, int ROW_TILES, int SLICE, class Places>
DEVICE void store_slice(const Places& places, int first, const float (&out)[ROW_TILES][SLICE][4],
                        const float (&factor)[ROW_TILES][2]) {
    const int lane = threadIdx.x % 32, column = 16 * first + ColumnsInPairs::first<Stored>(lane);
    UNROLL for (int row_pair = 0; row_pair < 2 * ROW_TILES; ++row_pair) {
        const int m = row_pair / 2, r = row_pair % 2, row = 8 * row_pair + lane / 4;
        const bool exists = places.holds(row);
        auto* address = places.target + (exists ? places.offset(row) : 0) + column;
        UNROLL for (int d = 0; d < SLICE; d += 2) {
            float x[2][2];
            UNROLL for (int i = 0; i < 4; ++i) x[i / 2][i % 2] = out[m][d + i / 2][2 * r + i % 2] * factor[m][r];
            ColumnsInPairs::store<Stored>(address + 8 * d, x, exists ? COLUMNS - 8 * d - column : 0, lane);
        }
    }
}

// ---------------------------------------------------------------- items, and the units that they have

constexpr int SPLITS = 0;  // of each item; 0: wherever thread blocks' runs of tiles end
constexpr bool HEADS_DIFFER = false;  // whether heads of a group may keep other tiles
constexpr bool EVENS_BLOCKS = false;  // whether blocks of rows of a head may have more or fewer units
constexpr bool KNOWS_TILES = true;  // of a sequence's rows, before its head is known, by each lane for itself

template <class AnyWork> DEVICE Context context_of(const Params& params, const AnyWork& work, int head) {
    return make_context(params, work, head, work.head);
}

/// Tiles from the first key of a range to the last.
DEVICE int tiles_of(const TileRange& range) {
    return max((int)((unsigned)(range.end + BLOCK_KV - 1) / BLOCK_KV - (unsigned)range.begin / BLOCK_KV), 0);
}

/// Blocks of BLOCK_Q rows that a key head of a sequence has.
DEVICE int q_blocks_of(const Params& params, const Work& work) {
    return (unsigned)(work.q_len * params.group + BLOCK_Q - 1) / BLOCK_Q;
}

/// The units of an item, a block of rows of a key head: its splits, or what it takes to have them finished, in tiles. Heads of a
/// sequence have the same. An item without keys has one unit: its results are written by somebody. All lanes may have works of
/// their own.
template <class AnyWork> DEVICE int units_of(const Params& params, const AnyWork& work, const Team& team) {
    if (SPLITS > 0) return SPLITS;
    TileRange range = {0, 0, 0, work.kv_len};
    if constexpr (KNOWS_TILES) {
        const Rows rows(params, work);
        const Context context = context_of(params, work, rows.head());
        range = QueryBlock(params, context, rows).range<true>();
    }
    return team.rounded(max(tiles_of(range), 1));
}

template <class AnyWork> DEVICE void find_sequence_rows(AnyWork& work, const Params& params, int sequence) {
    work.sequence = sequence;
    work.batch_index = params.cu_seqlens_q == nullptr ? sequence : 0;
    work.head = work.split = work.q_block = 0;
    find_rows(work, params);
}

/// The units of each key head of a sequence; and of each of its blocks of rows, if all are taken to have as many: else 0.
struct HeadUnits {
    int units = 0, of_block = 0;

    /// Of several blocks the first and the last may have about as many. Then all have as many as the one of these that has more, so that
    /// each can be cut by itself (head_runs.cuh).
    template <class AnyWork> DEVICE HeadUnits(const Params& params, const AnyWork& work, const Team& team) {
        constexpr int ABOUT = 8;
        const int end = team.q_blocks_end(q_blocks_of(params, work));
        int first = 0, own = 0;
        AnyWork each = work;
        NO_UNROLL for (each.q_block = team.first_q_block; each.q_block < end; ++each.q_block) {
            own = units_of(params, each, team);
            first = each.q_block == team.first_q_block ? own : first;
            units += own;
        }
        const int most = max(first, own);
        if (!EVENS_BLOCKS || abs(first - own) > most / ABOUT) return;
        of_block = most;
        units = most * end;
    }
};

/// An item, and where its units stand among those of all: sequence by sequence, in one head by head, in one by blocks of rows.
struct Item {
    Work work;
    int first, units;
    int of_block;  // as of the sequence's HeadUnits

    Item() = default;

    /// What comes before the first item of the head that has a unit, or of blocks that have as many before the one that has it.
    DEVICE Item(const Params& params, int unit, int sequence, int sequence_first, const Team& team) {
        find_sequence_rows(work, params, sequence);
        const HeadUnits of_head(params, work, team);
        const int each = max(of_head.units, 1);
        work.head = uniform((unit - sequence_first) / each);
        work.q_block = team.first_q_block - 1;
        units = 0;
        first = uniform(sequence_first + work.head * each);
        of_block = EVENS_BLOCKS ? uniform(of_head.of_block) : 0;
        if (!EVENS_BLOCKS) return;
        const int before = uniform((unit - first) / max(of_block, 1)) * (of_block > 0);
        work.q_block += before;
        first += before * of_block;
    }

    /// Goes on to the next item, if there is one that begins before unit `end`.
    DEVICE bool advance(const Params& params, int end, const Team& team) {
        first += units;
        if (first >= end) return false;
        if (++work.q_block == team.q_blocks_end(q_blocks_of(params, work))) {
            if (++work.head == params.num_kv_heads) next_sequence(params, team);
            work.q_block = team.first_q_block;
        }
        const int own = uniform(units_of(params, work, team));
        units = of_block > 0 ? of_block : own;
        return true;
    }

private:
    /// There is one, since there are units left.
    DEVICE void next_sequence(const Params& params, const Team& team) {
        int sequence = work.sequence + 1;
        for (; find_sequence_rows(work, params, sequence), work.q_len == 0; ++sequence) {}
        if (EVENS_BLOCKS) of_block = HeadUnits(params, work, team).of_block;
    }
};

/// The units of a sequence, of which lanes have one each. `even` stays true if all blocks of rows of a head have as many.
DEVICE int sequence_units(const Params& params, int sequence, const Team& team, bool& even) {
    LaneWork work;
    find_sequence_rows(work, params, sequence);
    const HeadUnits of_head(params, work, team);
    even &= !EVENS_BLOCKS || of_head.of_block > 0 || work.q_len == 0;
    return params.num_kv_heads * of_head.units;
}

// ---------------------------------------------------------------- the keys of a tile of Q

/// What all heads of a group together make of a range, or a tile, that each may see otherwise.
struct GroupBlock {
    const QueryBlock& block;
    const Rows& rows;

    /// The keys that some row keeps, from a multiple of BLOCK_KV on.
    DEVICE TileRange range() const {
        TileRange range = block.range();
        for (int of = 1; HEADS_DIFFER && of < rows.slots.group; ++of) {
            const Context context = context_of(block.params, rows.work, rows.head() + of);
            range = united(range, QueryBlock(block.params, context, rows).range());
        }
        return aligned<BLOCK_KV>(range);
    }

    DEVICE TileKind kind(int kv_first, int kv_last) const {
        TileKind kind = block.kind(kv_first, kv_last);
        for (int of = 1; HEADS_DIFFER && of < rows.slots.group; ++of) {
            const Context context = context_of(block.params, rows.work, rows.head() + of);
            kind = QueryBlock(block.params, context, rows).kind(kv_first, kv_last) == kind ? kind : PARTIAL;
        }
        return kind;
    }

private:
    /// What either looks at, and both keep whole.
    static DEVICE TileRange united(const TileRange& a, const TileRange& b) {
        const bool some = a.begin < a.end, others = b.begin < b.end;
        const int begin = !some ? b.begin : !others ? a.begin : min(a.begin, b.begin);
        return {begin, max(a.full_begin, b.full_begin), min(a.full_end, b.full_end), !some ? b.end : !others ? a.end : max(a.end, b.end)};
    }
};

/// The keys of units [begin, end) of an item.
DEVICE TileRange part_of(TileRange range, int begin, int end, int units) {
    if (SPLITS > 0) return share<BLOCK_KV>(range, begin, SPLITS);
    const int first = range.begin / BLOCK_KV, tiles = tiles_of(range);
    auto tile = [&](int unit) { return tiles == units ? unit : (int)((long long)unit * tiles / units); };
    range.begin = (first + tile(begin)) * BLOCK_KV;
    range.end = min(range.end, (first + tile(end)) * BLOCK_KV);
    return range;
}
// ---------------------------------------------------------------- how warps share a tile

constexpr int ROW_TILES = BLOCK_Q / WARP_ROWS, KEY_GROUPS = BLOCK_KV / WARP_KEYS;  // warps with the same rows are in other groups
constexpr int SLICE = 64 / 8;                                  // fragments of O that a warp has, of all rows
constexpr int LATENT_STAGES = 2;                               // where V is the first columns of K; below 2: not used
constexpr bool HAS_MAX = true;  // whether rows have maxima and sums
constexpr int RING_BYTES = 147456, SHARED_FLOATS = 230656 / 4;

/// Bytes of a row in shared memory: whole panels.
constexpr int panels(int columns) { return (columns * (int)sizeof(Element) + 127) / 128 * 128; }

using QTile = SharedTile<BLOCK_Q, panels(HEAD_DIM)>;
using KTile = SharedTile<BLOCK_KV, panels(HEAD_DIM)>;
using VTile = SharedTile<BLOCK_KV, panels(VALUE_HEAD_DIM)>;
using PTile = SharedTile<BLOCK_Q, BLOCK_KV * sizeof(Element)>;
using Exchange = RowExchange<BLOCK_Q, KEY_GROUPS>;
using OutSlice = float[ROW_TILES][SLICE][4];

/// What this warp does among those of a block. It has 16 rows and some keys of S and P, and columns of O.
struct WarpPlace {
    int row_warps, group;

    DEVICE explicit WarpPlace(const Rows& rows)
        : row_warps(rows.row_warps<WARP_ROWS>()), group(uniform(small_quotient(threadIdx.x / 32, row_warps))) {}

    /// Whether the warp has rows and keys: where a tile has few of either, some warps have none.
    DEVICE bool works() const { return group < KEY_GROUPS; }

    /// Whether the warp tells of its rows.
    DEVICE bool leads() const { return group == 0; }

    DEVICE int first_pair() const { return uniform(threadIdx.x / 32) * (SLICE / 2); }
};

// ---------------------------------------------------------------- one part of an item

/// S = Q K^T, score lines and mask: exponents of the warp's rows, of its keys in the tile at `keys`.
DEVICE void find_exponents(QueryBlock& block, const WarpPlace& warp, const Tile& own, unsigned queries, unsigned keys,
                           const Normalizer<M_TILES>& normalizer, Scores& scores) {
    const int lane = threadIdx.x % 32;
    const auto q_lane = query_lane<QTile>(queries, block.warp_row, lane);
    const auto k_lane = KTile::lane(keys, warp.group * WARP_KEYS + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    auto read = [&](int step, unsigned(&q)[M_TILES][4]) { load_queries<QTile>(q, q_lane, step); };
    // FlashAttention-2, Algorithm 1, line 8: S = Q K^T. The columns of a panel in each round of a loop.
    multiply_fragments_keys<Dtype, KTile, 4>(scores, read, k_lane, [](int) {});
    // Score lines have no cheap form here: a pair's product takes far longer than they do.
    if (own.kind != FULL) {
        TileMask mask;
        mask.prepare(block, own.kv_first);
        mask.apply(block, own.kv_first, scores);
    }
    normalizer.to_exponents(scores);
}

/// FlashAttention-2, Algorithm 1, lines 5 to 11, of the keys `part` of `range`. l becomes that of all groups.
template <bool LATENTS>
DEVICE void attend_part(const Params& params, const Rows& rows, QueryBlock& block, const WarpPlace& warp,
                        const TileRange& range, const TileRange& part, unsigned char* shared,
                        Normalizer<M_TILES>& normalizer, OutSlice& out) {
    // FlashAttention-2, Algorithm 1, line 4: load Q, with the first tile of K and V.
    constexpr int DEPTH = LATENTS ? LATENT_STAGES : STAGES;
    const Work& work = rows.work;
    const unsigned queries = shared_address(shared), ring = queries + QTile::BYTES, probs = ring + RING_BYTES;
    const Exchange exchange((float*)(shared + QTile::BYTES + RING_BYTES + PTile::BYTES));
    load_rows<QTile, THREADS, HEAD_DIM * sizeof(Element)>(
        queries, rows.places(params.q, params.q_stride_batch, params.q_stride_head, params.q_stride_row), warp.row_warps * WARP_ROWS);
    const int kv_head = work.head;
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
    const KvSource<LATENTS> source(kv);
    auto kind_of = [&](int kv_first, int kv_last) { return GroupBlock{block, rows}.kind(kv_first, kv_last); };
    LiveTiles<KvOrder, false, decltype(kind_of)> tiles(part, work.kv_len, kind_of);
    KvStream<DEPTH, KvOrder, THREADS, KTile, VTile, HEAD_DIM * sizeof(Element), VALUE_HEAD_DIM * sizeof(Element), decltype(source),
             decltype(tiles)>
        stream(source, tiles, ring);
    // The sign of the scale goes to Q, so that the softmax has a positive one.
    block.magnitude = uniform_float(take_sign<Dtype, QTile, THREADS>(queries, block.context.scale));
    stream.wait_first();
    normalizer = Normalizer<M_TILES>(block.unit());

    // FlashAttention-2, Algorithm 1, lines 6 and 7: for each tile of K and V.
    for (; stream.live(); stream.step()) {
        const Tile tile = stream.tile();
        stream.wait_keys();
        stream.load_ahead(0);
        stream.load_ahead(1);
        const int kv_first = tile.kv_first + warp.group * WARP_KEYS;
        const Tile own = {kv_first, tile.kind == FULL ? FULL : range.kind_at<WARP_KEYS>(kv_first)};
        Scores scores;
        each_score<N_TILES>(scores, [&](int, int, int, float) { return Normalizer<M_TILES>::masked(); });
        if (warp.works() && own.kind != EMPTY) find_exponents(block, warp, own, queries, stream.keys(), normalizer, scores);
        // FlashAttention-2, Algorithm 1, line 9: m, where a row needs a new one; with it O is rescaled, line 10.
        if constexpr (HAS_MAX) {
            if (!__syncthreads_and(!warp.works() || normalizer.max_still_valid(scores))) {
                if (warp.works()) exchange.put(block.warp_row, warp.group, normalizer, scores);
                __syncthreads();
                if (warp.works()) exchange.move(block.warp_row, normalizer, scores);
                __syncthreads();
                float factor[ROW_TILES][2];
                exchange.take_factors(factor);
                rescale_slice(out, factor);
            }
        }
        // FlashAttention-2, Algorithm 1, lines 9 and 10: P = exp(S - m), l += rowsum(P).
        normalizer.begin_tile();
        block.dropout.begin_tile(kv_first);
        auto to_probs = [&](int m, float(&x)[4]) { normalizer.to_probs(m, x); };
        if (warp.works()) put_probs<Dtype, PTile>(probs, block.warp_row, warp.group * N_TILES, scores, to_probs, block.dropout);
        normalizer.end_tile();
        stream.wait_values();
        if constexpr (DEPTH > 1) __syncthreads();  // all of P is there
        // FlashAttention-2, Algorithm 1, line 10: O += P V, of the warp's columns.
        const unsigned values = LATENTS ? stream.keys() : stream.values();
        multiply_slice<Dtype, PTile, VTile, PADDED_VALUE_HEAD_DIM, WARPS>(out, probs, values, warp.first_pair());
    }
    copy_wait<0>();
    if constexpr (HAS_MAX) {
        if (warp.works()) exchange.put_sums(block.warp_row, warp.group, normalizer);
        __syncthreads();
        if (warp.works()) exchange.take_sums(block.warp_row, normalizer);
    }
}
// ---------------------------------------------------------------- parts of an item

/// Writes O, and what else is known of the rows: as results, or m and l of one part to its slot.
DEVICE void store(const Params& params, const Rows& rows, const QueryBlock& block, const WarpPlace& warp, bool whole,
                  int slot, const Finished& finished, const float (&factor)[ROW_TILES][2], const OutSlice& out) {
    const long long first = (long long)slot * params.slot_rows;
    const int count = rows.tile_rows();
    if (whole) {
        store_slice<Dtype, VALUE_HEAD_DIM>(rows.places(params.out, params.out_stride_batch, params.out_stride_head, params.out_stride_row),
                                           warp.first_pair(), out, factor);
        if (warp.leads() && params.lse != nullptr)
            store_row_values<M_TILES>(Finished::results(params, rows, params.lse, 1), block.warp_row,
                                      [&](int own) { return finished.row_max[own] + logf(finished.row_sum[own]); });
        return;
    }
    store_slice<Unrounded, VALUE_HEAD_DIM>(SlotRows{params.partial_out + first * VALUE_HEAD_DIM, VALUE_HEAD_DIM, count}, warp.first_pair(),
                                           out, factor);
    if (!warp.leads() || params.row_max == nullptr) return;
    store_row_values<M_TILES>(SlotRows{params.row_max + first, 1, count}, block.warp_row, [&](int own) { return finished.row_max[own]; });
    store_row_values<M_TILES>(SlotRows{params.row_sum + first, 1, count}, block.warp_row, [&](int own) { return finished.row_sum[own]; });
}

/// Where rows of an item go, when all its parts are known.
struct ResultRows {
    const Params& params;
    const QueryBlock& block;
    const Rows& rows;

    DEVICE void store(int row, int column, float4 x) const {
        const auto out = rows.places(params.out, params.out_stride_batch, params.out_stride_head, params.out_stride_row);
        store_four<Dtype>(out.target + out.offset(row) + column, x);
    }

    DEVICE void store_row(int row, float max, float sum) const {
        const auto lse = Finished::results(params, rows, params.lse, 1);
        if (params.lse != nullptr) lse.target[lse.offset(row)] = max + logf(sum);
    }

    DEVICE float sink(int row) const {
        return block.sink_of([&] { return make_row(params, block.context, rows.q_idx(row), rows.head_of(row)); });
    }
};

/// Flash-Decoding, step 3: merges rows [from, to) of all parts, and writes O and lse.
DEVICE void merge(const Params& params, const QueryBlock& block, const Rows& rows, const Parts<VALUE_HEAD_DIM>& parts,
                  int from, int to, unsigned char* shared) {
    merge_parts<THREADS, VALUE_HEAD_DIM>(parts, from, to, (float*)shared, SHARED_FLOATS, ResultRows{params, block, rows});
}

/// x, which is the same in all threads: where the accumulators of wide heads leave no registers for it, in shared memory. All
/// threads of the block must call.
template <class T> DEVICE const T& kept(const T& x) {
    if constexpr (D_TILES <= 16) {
        return x;
    } else {
        __shared__ T place;
        __syncthreads();  // all have left what was there
        if (threadIdx.x == 0) place = x;
        __syncthreads();
        return place;
    }
}

/// A thread block's run of units.
struct Run {
    Runs all;
    int begin, end;
    Team team;
};

// ---------------------------------------------------------------- the kernel

/// FlashAttention-2, Algorithm 1, for heads whose rows of O one warp can't hold: warps share the keys of a tile for S and P, and the
/// columns of V for O. Thread blocks share out the tiles of all items as those of decode do (decode.cu.j2).
extern "C" __global__ void __launch_bounds__(THREADS, 1) mla_decode_forward(const __grid_constant__ Params params) {
    extern __shared__ __align__(1024) unsigned char shared[];
    // Flash-Decoding, step 1, as in LeanAttention: this thread block's run of the units of all items.
    bool even = true;
    const SequenceUnits all(params.batch, [&](int sequence) { return sequence_units(params, sequence, Team(), even); });
    const int total = all.total();
    const int count = count_runs(total, params.most_parts, params.few_units, params.fewer_runs);
    const Runs runs(total, count);
    const Run found = {runs, uniform(runs.begin(block_index())), uniform(runs.begin(block_index() + 1)), Team()};
    if (found.begin >= total) return;
    int sequence_first;
    const int sequence = uniform(all.find(found.begin, sequence_first));
    Item next(params, found.begin, sequence, sequence_first, Team());
    const Run& run = kept(found);
    while (next.advance(params, run.end, run.team)) {
        if (next.first + next.units <= run.begin) continue;  // of the same head, before the run
        const Item& item = kept(next);
        const Work& work = item.work;
        const Rows rows(params, work);
        const Context made = context_of(params, work, rows.head());
        const Context& context = kept(made);
        QueryBlock block(params, context, rows);
        const WarpPlace warp(rows);
        const TileRange seen = GroupBlock{block, rows}.range();
        const TileRange& range = kept(seen);

        // Which of its units are this thread block's.
        const int begin = max(run.begin - item.first, 0), end = min(run.end - item.first, item.units);
        const bool whole = SPLITS > 0 ? SPLITS == 1 : end - begin == item.units;
        for (int unit = begin; unit < end; unit = SPLITS > 0 ? unit + 1 : end) {
            __syncthreads();  // all have left shared memory
            OutSlice out = {};
            Normalizer<M_TILES> normalizer(1);
            const TileRange part = part_of(range, unit, end, item.units);
            if (LATENT_STAGES > 1 && values_are_keys(params))
                attend_part<(LATENT_STAGES > 1)>(params, rows, block, warp, range, part, shared, normalizer, out);
            else
                attend_part<false>(params, rows, block, warp, range, part, shared, normalizer, out);
            auto sink = [&](int m, int r) { return whole ? block.sink_at(m, r) : NEGATIVE_INFINITY; };
            // FlashAttention-2, Algorithm 1, lines 12 to 15; or Flash-Decoding, step 2.
            const float holds = keys_hold(params, work.sequence, min(part.end, work.kv_len), part.begin);
            const Finished finished(normalizer, sink, block.dropout.scale() * holds);
            const Exchange exchange((float*)(shared + QTile::BYTES + RING_BYTES + PTile::BYTES));
            if (warp.leads()) exchange.put_factors(block.warp_row, finished.factor);
            __syncthreads();
            float factor[ROW_TILES][2];
            exchange.take_factors(factor);
            const int slot = SPLITS > 0 ? item.first + unit : 2 * blockIdx.x + (begin == 0);
            store(params, rows, block, warp, whole, slot, finished, factor, out);
        }
        const Owners owners(run.all, item.first, item.units);
        const MergePieces pieces(SPLITS > 0 ? SPLITS : owners.count, rows.tile_rows());
        next = Item(item);
        if (whole) continue;
        const bool at_end = item.first + item.units >= run.end;  // of the run
        const unsigned own = pieces.take(params.arrivals + owners.first, owners.count, at_end);
        const Parts<VALUE_HEAD_DIM> of_splits = {params.partial_out, params.row_max, params.row_sum, params.slot_rows, SPLITS,
                                                 item.first, item.first + 1, 1};
        const Parts<VALUE_HEAD_DIM> of_runs = {params.partial_out, params.row_max, params.row_sum, params.slot_rows, owners.count,
                                               2 * owners.first + 1, 2 * owners.first + 2, 2};
        const auto& parts = SPLITS > 0 ? of_splits : of_runs;
        NO_UNROLL for (int piece = 0, end; piece < pieces.count; piece = end + 1) {
            end = pieces.end(own, piece);  // those that follow one another are merged at once
            if (end == piece) continue;
            merge(params, block, rows, parts, piece * pieces.size, min(end * pieces.size, rows.tile_rows()), shared);
        }
    }
}
