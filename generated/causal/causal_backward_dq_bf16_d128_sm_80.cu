// causal, backward_dq pass: bf16, head dim 128, for sm_80.
// Written by attncc 0.2.0 from specs/causal.attn (sha256 f8341f755b9dc744). Do not edit.
//
// Contents, by line:
//    42  sizes
//    56  leaf code: element.cuh 58, math.cuh 62, bf16.cuh 119, statistics_floats.cuh 141, lanes.cuh 163,
//        layout.cuh 176, load_matrices.cuh 219, mma_16bit.cuh 230, low_bits_16bit.cuh 304, gradient_softmax.cuh 320,
//        replay_all.cuh 338, grid.cuh 344, output.cuh 444, copy.cuh 512, tile_kind.cuh 580, tiles.cuh 584,
//        pair_stream.cuh 648, row_blocks.cuh 726, tiles_1d.cuh 738
//   783  causal: Params 785, Context 800, make_context 808, Row 813, make_row 817, keep 826, ScoreGradient 833,
//        KvBounds 839, kv_bounds 843
//   852  pairs
//   893  leaf code, continued: kept_in_registers.cuh 895
//   903  one tile of gradients
//   939  the kernel
//   996    FlashAttention-2, Algorithm 2, with its loops exchanged: for each tile of K and V.
//  1001    FlashAttention-2, Algorithm 2, line 13: dP = dO V^T.
//  1003    FlashAttention-2, Algorithm 2, line 10: S = Q K^T.
//  1006    FlashAttention-2, Algorithm 2, lines 11 and 14: P = exp(S - lse), dS = P (dP - delta).
//  1011    FlashAttention-2, Algorithm 2, line 15: dQ += dS K, in registers.
//
// Causal attention, bottom-right aligned: with q_len < kv_len (a chunk of a longer sequence, decoding) the last query
// sees every key. For top-left alignment write `keep if causal_top_left()`.
//
// variant causal
//   keep if causal()
//
// schedule
//   family = portable, loop = q_outer, block_q = 64, block_kv = 64,
//   stages = 2, warps = 4, split_kv = 1, skip = auto
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

constexpr int BLOCK_Q = 64;
constexpr int BLOCK_KV = 64;
constexpr int WARPS = 4;
constexpr int STAGES = 2;
constexpr int HEAD_DIM = 128, PADDED_HEAD_DIM = 128;
constexpr int VALUE_HEAD_DIM = 128, PADDED_VALUE_HEAD_DIM = 128;

constexpr int ROW_ALIGNMENT = 16;
constexpr int THREADS = 32 * WARPS;
constexpr int WARP_ROWS = 16;  // of S, or of its transpose
constexpr int M_TILES = WARP_ROWS / 16;

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

/// How exponents become probabilities with 16-bit operands: powers of 2, UNIT of them in a natural unit. Where a row's
/// largest exponent begins, and how far it may grow: normalize_softmax.cuh.
struct PowersOfTwo {
    static constexpr float UNIT = LOG2_E, NATURAL = LN_2, FIRST = 0, GROWTH = 8;
    static DEVICE float power(float x) { return exp2_flushed(x); }

    /// What ldmatrix brings is multiplied in so many parts: 8 bits in two, in another dtype.
    static constexpr int PARTS = 1;
};

/// x, which is the same in all lanes: kept once for the warp, and so is what is computed from it. Not to be called
/// under a condition: ptxas 13.0 may make the branch a predicate, and use its register too early.
DEVICE int uniform(int x) {
    int result;
    asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
    return result;
}

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

// ---- statistics_floats.cuh
/// Of a row: lse as an exponent, infinite for a row without weight, and delta.
struct alignas(8) RowStatistics {
    float exponent, delta;

    DEVICE const RowStatistics& at_first() const { return *this; }

    /// The probability of a pair, 0 of one that isn't kept. `low_bits`: what the rounding of the score took from it, which is
    /// nothing to the operands of P V.
    template <class Dtype>
    DEVICE float prob(bool kept, float score, float factor, [[maybe_unused]] float low_bits) const {
        return Dtype::power(kept ? fmaf(score, factor, -exponent) : NEGATIVE_INFINITY);
    }
};

/// Probabilities have the weight that lse gives them.
template <int M_TILES> struct RowWeights {
    DEVICE void add(int, int, float) {}
    DEVICE float excess(int, int, float) const { return 0; }
    DEVICE void tell(RowStatistics&, float) const {}
};

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

/// scores = Q K^T: the warp's M_TILES * 16 rows of Q from `first_row` on, times all rows of the K tile. Of more than 192 columns,
/// 64 in each round of a loop.
template <class Dtype, class QTile, class KTile, int UNROLLED = QTile::CHUNKS <= 24 ? QTile::CHUNKS / 2 : 4, int M_TILES, int N_TILES>
DEVICE void multiply_queries_keys(float (&scores)[M_TILES][N_TILES][4], unsigned queries, int first_row,
                                  unsigned keys) {
    auto read = [&](int step, unsigned(&q)[M_TILES][4]) {
        load_queries<QTile>(q, query_lane<QTile>(queries, first_row, threadIdx.x % 32), step);
    };
    multiply_fragments_keys<Dtype, KTile, UNROLLED>(scores, read, key_lane<KTile>(keys, threadIdx.x % 32), [](int) {});
}

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

// ---- low_bits_16bit.cuh
/// What rounding takes from scores, in units of theirs: nothing to speak of beside that of their operands.
template <int M_TILES, int N_TILES> struct ScoreLowBits {
    static DEVICE float of(int, int, int) { return 0; }
};

/// The same, and what rounding took from each score.
template <class Dtype, class QTile, class KTile, int M_TILES, int N_TILES>
DEVICE void multiply_queries_keys(float (&scores)[M_TILES][N_TILES][4], ScoreLowBits<M_TILES, N_TILES>&,
                                  unsigned queries, int first_row, unsigned keys) {
    multiply_queries_keys<Dtype, QTile, KTile>(scores, queries, first_row, keys);
}

/// What a block works on, for what comes after its loop: the loop leaves registers to keep it in.
template <class Work, class Params> DEVICE const Work& found_again(const Work& work, const Params&) { return work; }

// ---- gradient_softmax.cuh
/// P = exp(score - lse), dS = P (dP - delta).
struct Gradient {
    float factor;

    /// `unit`: natural units in one unit of the scores.
    DEVICE explicit Gradient(float unit) : factor(unit * Dtype::UNIT) {}

    /// The probability, and the gradient of the score. `low_bits` is what rounding took from the score; `prob_gradient` is
    /// dP. A pair that isn't kept weighs nothing, whatever its score, and one of -inf in natural units neither: for them
    /// both are exactly 0, if dP and delta are finite.
    DEVICE float of(bool kept, float score, [[maybe_unused]] float low_bits, float prob_gradient,
                    [[maybe_unused]] const RowStatistics& row, float& prob) const {
        prob = row.prob<Dtype>(kept, score, factor, low_bits);
        return prob * (prob_gradient - row.delta);
    }
};

// ---- replay_all.cuh
/// No dropout. The interface is that of replay_rows.cuh and replay_keys.cuh.
template <int M_TILES, int KEYS> struct Replay {
    DEVICE bool keeps(int, int, int, int) const { return true; }
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

/// Stores the warp's rows of a tile whose row 0 goes to `target`.
template <class Stored, class Order, int COLUMNS, int M_TILES, int D_TILES>
DEVICE void store_rows(typename Stored::Element* target, long long stride, int rows, int slot,
                       const float (&out)[M_TILES][D_TILES][4], const float (&factor)[M_TILES][2],
                       int lane = threadIdx.x % 32) {
    store_rows<Stored, COLUMNS>(RowPlaces<typename Stored::Element, Order>{target, stride, rows}, slot, out, factor, lane);
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

/// Starts to load a tile whose rows stand as `Order` says; all THREADS threads take part. `source` is the tile's first row,
/// `rows` how many positions there are from it on: what lies beyond, and the bytes of a row from VALID_BYTES on, become
/// zeros.
template <class Tile, class Order, int THREADS, int VALID_BYTES>
DEVICE void load_tile(unsigned tile, const void* source, long long row_bytes, int rows) {
    const char* bytes = static_cast<const char*>(source);
    if (Order::whole(0, rows))
        load_columns<Tile, Order, THREADS, VALID_BYTES, false>(tile, bytes, row_bytes, rows);
    else
        load_columns<Tile, Order, THREADS, VALID_BYTES, true>(tile, bytes, row_bytes, rows);
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

/// A range from a multiple of BLOCK on.
template <int BLOCK> DEVICE TileRange aligned(TileRange range) {
    range.begin = range.begin / BLOCK * BLOCK;
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

// ---- pair_stream.cuh
/// Rows of two tensors that the inner loop goes over together: K and V, or Q and dO. Strides are in bytes.
struct RowPair {
    const char *first, *second;
    long long first_stride, second_stride;
    int length;
};

/// The live tiles (see LiveTiles) of a pair of tensors in a ring of STAGES buffers for each, loaded while earlier ones are
/// worked on. Both tiles stay until the step. `load_more(tile, slot)` loads what else belongs to a tile. All threads of the
/// block must make the same calls.
template <int STAGES, class Order, int THREADS, class FirstTile, class SecondTile, int FIRST_BYTES, int SECOND_BYTES, class Tiles, class LoadMore>
struct PairStream {
    static constexpr int AHEAD = STAGES - 1;

    const RowPair& rows;
    Tiles& tiles;
    LoadMore& load_more;
    unsigned first_buffers, second_buffers;
    int slot = 0;        // of the tile in hand
    Tile queue[STAGES];  // the tile in hand, and those ahead of it

    /// Starts to load the first tiles; their first group takes in the copies that the caller has issued before.
    DEVICE PairStream(const RowPair& rows, Tiles& tiles, unsigned buffers, LoadMore& load_more)
        : rows(rows), tiles(tiles), load_more(load_more), first_buffers(buffers),
          second_buffers(buffers + STAGES * FirstTile::BYTES) {
        NO_UNROLL for (int i = 0; i < AHEAD; ++i) {
            shift(AHEAD);
            queue[AHEAD - 1] = tiles.advance();
            load(queue[AHEAD - 1], i);
        }
        if (STAGES == 1) queue[0] = tiles.advance();
    }

    DEVICE bool live() const { return queue[0].kind != EMPTY; }
    DEVICE Tile tile() const { return queue[0]; }
    DEVICE unsigned first() const { return first_buffers + slot * FirstTile::BYTES; }
    DEVICE unsigned second() const { return second_buffers + slot * SecondTile::BYTES; }

    /// Returns when the tile in hand is in shared memory and all warps have left the tile before it.
    DEVICE void wait() {
        if (STAGES == 1) {
            __syncthreads();
            load(queue[0], 0);
        }
        copy_wait<STAGES == 1 ? 0 : STAGES - 2>();
        __syncthreads();
        if (STAGES == 1) return;
        queue[AHEAD] = tiles.advance();
        load(queue[AHEAD], slot == 0 ? AHEAD : slot - 1);
    }

    DEVICE void step() {
        if (STAGES == 1) queue[0] = tiles.advance();
        shift(STAGES);
        slot = slot == AHEAD ? 0 : slot + 1;
    }

private:
    DEVICE void shift(int count) {
        UNROLL for (int i = 1; i < count; ++i) queue[i - 1] = queue[i];
    }

    DEVICE void load(const Tile& tile, int target) const {
        if (tile.kind != EMPTY) {
            const int count = rows.length - tile.kv_first;
            load_tile<FirstTile, Order, THREADS, FIRST_BYTES>(first_buffers + target * FirstTile::BYTES,
                                                       rows.first + tile.kv_first * rows.first_stride,
                                                       rows.first_stride, count);
            load_tile<SecondTile, Order, THREADS, SECOND_BYTES>(second_buffers + target * SecondTile::BYTES,
                                                         rows.second + tile.kv_first * rows.second_stride,
                                                         rows.second_stride, count);
            load_more(tile, target);
        }
        copy_commit();
    }
};

// ---- row_blocks.cuh
// What the backward kernels keep of rows lies in blocks of 16 rows, so that 16-byte accesses fit: of each row its statistics,
// and the sum of dQ in fragments. Each sequence and head begins with a block of its own, and ends with as many as fill up a
// multiple of ROW_ALIGNMENT rows, which the kernel that includes this says.
constexpr int ROW_BLOCK = 16, ALIGNED_BLOCKS = ROW_ALIGNMENT / ROW_BLOCK;

/// The row block that a head of a sequence begins with.
template <class Work, class Params> DEVICE long long first_row_block(const Params& params, const Work& work, int head) {
    const int before = params.cu_seqlens_q == nullptr ? 0 : work.q_start / ROW_ALIGNMENT + work.sequence;
    return ((long long)work.batch_index * params.num_heads + head) * params.row_blocks + before * ALIGNED_BLOCKS;
}

// ---- tiles_1d.cuh
/// Where the rows (or keys) of a tile stand: SIZE positions in a row (1-D). The tiles of a sequence, laid out one after
/// the other, are its slots; here slots are positions. See tiles_2d.cuh for tiles of a grid.
template <int SIZE, int WIDTH, int COLUMNS> struct TileOrder {
    static constexpr int BLOCK = SIZE;

    /// The first position of the tile that begins with a slot, and the last that it has in a sequence of this length.
    static DEVICE int first(int slot) { return slot; }
    static DEVICE int last(int first, int length) { return min(first + BLOCK, length) - 1; }

    /// Whether all of the tile lies in the sequence.
    static DEVICE bool whole(int first, int length) { return first + BLOCK <= length; }

    /// The position of a slot of a tile, counted from the tile's first.
    static constexpr DEVICE int offset(int slot) { return slot; }
};

using Element = Dtype::Element;
using QOrder = TileOrder<BLOCK_Q, 1, 1>;
using KvOrder = TileOrder<BLOCK_KV, 1, 1>;

using QTile = SharedTile<BLOCK_Q, PADDED_HEAD_DIM * sizeof(Element)>;
using KTile = SharedTile<BLOCK_KV, PADDED_HEAD_DIM * sizeof(Element)>;
using VTile = SharedTile<BLOCK_KV, PADDED_VALUE_HEAD_DIM * sizeof(Element)>;
using DoutTile = SharedTile<BLOCK_Q, PADDED_VALUE_HEAD_DIM * sizeof(Element)>;

using KeyGradient = float[M_TILES][PADDED_HEAD_DIM / 8][4];

/// out += x Y: what is multiplied is ready as it is.
template <class YTile, class Sum, class Factors> DEVICE void multiply(Sum& sum, Factors& x, unsigned y) {
    struct Undropped {
        DEVICE void drop(unsigned (&)[4], int, int) {}
        DEVICE void drop(float (&)[4], int, int) {}
    } undropped;
    multiply_probs_values<Dtype, YTile>(sum, x, y, [](int, float(&)[4]) {}, undropped);
}

/// Stores the warp's rows, the first at `target`, times `factor_of(m, r)`.
template <class Order, int COLUMNS, class Sum, class Factor>
DEVICE void store_gradient(Element* target, long long stride, int rows, const Sum& sum, Factor factor_of) {
    float factors[M_TILES][2];
    UNROLL for (int row = 0; row < 2 * M_TILES; ++row) factors[row / 2][row % 2] = factor_of(row / 2, row % 2);
    store_rows<Dtype, Order, COLUMNS>(target, stride, rows, 0, sum, factors);
}

// ---------------------------------------------------------------- causal

struct Params {
    const bf16 *q, *k, *v, *dout;
    bf16 *dq;
    const float *statistics;
    const int *cu_seqlens_q, *cu_seqlens_kv, *kv_lens, *block_table, *q_offsets;
    long long q_stride_batch, q_stride_head, q_stride_row;
    long long k_stride_batch, k_stride_head, k_stride_row;
    long long v_stride_batch, v_stride_head, v_stride_row;
    long long dout_stride_batch, dout_stride_head, dout_stride_row;
    long long dq_stride_batch, dq_stride_head, dq_stride_row;
    int q_offset, q_offset_form, batch, num_heads, num_kv_heads, q_len, kv_len, row_blocks, q_blocks, splits;
    int head_swizzle;
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
#line 822 "causal_backward_dq_bf16_d128_sm_80.cu"
    return row;
}

// keep if causal()
DEVICE bool keep(const Params& params, const Context& ctx, const Row& row, int kv_idx) {
#line 8 "specs/causal.attn"
    return row.q_pos >= kv_idx;
#line 830 "causal_backward_dq_bf16_d128_sm_80.cu"
}

// The score after all score lines, and its derivatives: by the score before them, by learnable inputs.
struct ScoreGradient {
    float score, slope;
};

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

// ---------------------------------------------------------------- pairs

/// What makes up for the pairs that dropout drops.
DEVICE float dropout_scale(const Params& params) {
    float scale = 1;
    return scale;
}

/// One head of the queries, and what the variant asks of its pairs.
struct Pairs {
    const Params& params;
    const Context& context;
    Gradient gradient;
    Replay<M_TILES, BLOCK_KV> replay;
    float kept_scale;

    /// `warp_first`: the first q_idx, or in the transpose kv_idx, of the warp.
    DEVICE Pairs(const Params& params, const Context& context, int warp_first)
        : params(params), context(context), gradient(context.scale), kept_scale(dropout_scale(params)) {}

    DEVICE bool keeps(const Row& row, int kv_idx) const {
        bool kept = true;
        kept = keep(params, context, row, kv_idx);
        return kept;
    }

    /// From x = q k and y = dO v of a pair to its probability, as O took it up, and the gradient of scale * q k. Unless FULL,
    /// pairs that aren't kept and those that aren't `inside` the sequence get exact zeros. `low_bits` is what rounding took from x.
    /// `learn(found, gradient)` takes the gradient of the final score. Returns the probability that isn't dropped.
    template <bool FULL, class Learn>
    DEVICE float differentiate(const Row& of_row, int kv_idx, RowStatistics row, bool inside, bool replayed,
                               float low_bits, float& x, float& y, Learn learn) const {
        ScoreGradient found = {x, 1.0f};
        const bool kept = FULL || (keeps(of_row, kv_idx) & inside);
        float prob;
        y = gradient.of(kept, found.score, low_bits, replayed ? y * kept_scale : 0.0f, row, prob);
        learn(found, y);
        x = replayed ? prob : 0.0f;
        return prob;
    }
};
// ---------------------------------------------------------------- leaf code, continued

// ---- kept_in_registers.cuh
// What a backward kernel keeps for its loop, in registers. kept_in_smem.cuh has the same interface.

constexpr bool KNOWS_FULL = true;  // tiles of which all is kept have code of their own

/// What is asked for between tiles, and the same in all threads.
template <bool, class T> DEVICE T aside(const T& x) { return x; }

// ---------------------------------------------------------------- one tile of gradients

constexpr int N_TILES = BLOCK_KV / 8;  // of S
constexpr bool CLASSIFIES = false;  // single tiles, beyond the bounds
using Scores = float[M_TILES][N_TILES][4];
using LowBits = ScoreLowBits<M_TILES, N_TILES>;

/// The keys that some row of the block keeps. What the bounds don't decide, the kind of a tile does.
DEVICE TileRange keys_of(const Params& params, const Context& context, int q_first, int q_last) {
    TileRange range = {0, 0, 0, context.kv_len};
    const KvBounds bounds = kv_bounds(params, context, q_first, q_last);
    range = {uniform(bounds.kv_begin), uniform(bounds.full_begin), uniform(bounds.full_end), uniform(bounds.kv_end)};
    return range;
}

/// dS of a tile from S = Q K^T and dP = dO V^T, in the latter's place.
template <bool FULL>
DEVICE void differentiate(Pairs& pairs, int kv_first, int warp_first, const RowStatistics (&of_rows)[M_TILES][2],
                          Scores& scores, const LowBits& low_bits, Scores& gradients, RowWeights<M_TILES>& weights) {
    const int lane = threadIdx.x % 32, q_last = pairs.context.q_len - 1, kv_last = pairs.context.kv_len - 1;
    Row rows[M_TILES][2];
    const int first = opaque(warp_first + lane / 4);
    UNROLL for (int row = 0; row < 2 * M_TILES; ++row)
        rows[row / 2][row % 2] = make_row(pairs.params, pairs.context, min(first + 8 * row, q_last));
    UNROLL for (int n = 0; n < N_TILES; ++n) {
        UNROLL for (int side = 0; side < 2; ++side)
            UNROLL for (int row = 0; row < 2 * M_TILES; ++row) {
                const int m = row / 2, r = row % 2, kv_idx = kv_first + 8 * n + lane % 4 * 2 + side;
                weights.add(m, r, pairs.differentiate<FULL>(
                    rows[m][r], FULL ? kv_idx : min(kv_idx, kv_last), of_rows[m][r], kv_idx <= kv_last,
                    pairs.replay.keeps(m, n, r, side), low_bits.of(m, n, 2 * r + side), scores[m][n][2 * r + side],
                    gradients[m][n][2 * r + side], [](const ScoreGradient&, float) {}));
            }
    }
}

// ---------------------------------------------------------------- the kernel

/// What a block works on, and the rows of it.
struct BlockOfRows : Work {
    int q_first, q_last;
    DEVICE explicit BlockOfRows(const Params& params)
        : Work(find_work<BLOCK_Q>(params, params.num_heads, 1)), q_first(q_block * BLOCK_Q), q_last(min(q_first + BLOCK_Q, q_len) - 1) {}
};

/// dQ alone, bitwise the same in every run: a block owns BLOCK_Q rows of one head and goes over the keys that they keep, as
/// the forward pass does. dQ += dS K takes dS from registers.
extern "C" __global__ void __launch_bounds__(THREADS, 1) causal_backward_dq(const __grid_constant__ Params params) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const BlockOfRows work(params);
    const int q_first = work.q_first, q_last = work.q_last;
    if ((unsigned)q_first >= (unsigned)work.q_len) return;
    const int kv_head = work.head / (params.num_heads / params.num_kv_heads), warp_row = threadIdx.x / 32 * WARP_ROWS;
    const Context& context = uniform_struct(make_context(params, work, work.head, kv_head));
    const unsigned queries = shared_address(shared), dout = queries + QTile::BYTES, buffers = dout + DoutTile::BYTES;
    const long long row = work.q_start + (long long)q_first;
    load_tile<QTile, QOrder, THREADS, HEAD_DIM * sizeof(Element)>(
        queries, params.q + work.batch_index * params.q_stride_batch + work.head * params.q_stride_head + row * params.q_stride_row,
        params.q_stride_row * sizeof(Element), work.q_len - q_first);
    load_tile<DoutTile, QOrder, THREADS, VALUE_HEAD_DIM * sizeof(Element)>(
        dout, params.dout + work.batch_index * params.dout_stride_batch + work.head * params.dout_stride_head +
                  row * params.dout_stride_row,
        params.dout_stride_row * sizeof(Element), work.q_len - q_first);

    RowStatistics of_rows[M_TILES][2] = {};
    auto with_statistics = [&](const BlockOfRows& work, int m, int r, auto visit) {
        const int q_idx = work.q_first + warp_row + 16 * m + 8 * r + threadIdx.x % 32 / 4;
        auto* row = (RowStatistics*)params.statistics + (first_row_block(params, work, work.head) * ROW_BLOCK + q_idx);
        if (params.statistics != nullptr && q_idx <= work.q_last) visit(*row);
    };
    UNROLL for (int i = 0; i < 2 * M_TILES; ++i)
        with_statistics(work, i / 2, i % 2, [&](const RowStatistics& row) { of_rows[i / 2][i % 2] = row.at_first(); });
    const TileRange& range = aside<true>(aligned<BLOCK_KV>(keys_of(params, context, q_first, q_last)));
    auto kind_of = [&](int kv_first, int kv_last) {
        TileKind kind = PARTIAL;
        return kind;
    };
    LiveTiles<KvOrder, CLASSIFIES, decltype(kind_of)> tiles(range, work.kv_len, kind_of);
    const Element* k = params.k + work.batch_index * params.k_stride_batch + kv_head * params.k_stride_head +
                       work.kv_start * params.k_stride_row;
    const Element* v = params.v + work.batch_index * params.v_stride_batch + kv_head * params.v_stride_head +
                       work.kv_start * params.v_stride_row;
    const RowPair& keys = aside<true>(RowPair{(const char*)uniform_pointer(k), (const char*)uniform_pointer(v),
                                              params.k_stride_row * (long long)sizeof(Element),
                                              params.v_stride_row * (long long)sizeof(Element), work.kv_len});
    auto load_nothing = [](const Tile&, int) {};
    PairStream<STAGES, KvOrder, THREADS, KTile, VTile, HEAD_DIM * sizeof(Element), VALUE_HEAD_DIM * sizeof(Element), decltype(tiles),
               decltype(load_nothing)>
        stream(keys, tiles, buffers, load_nothing);

    Pairs pairs(params, context, q_first + warp_row);
    KeyGradient dq = {};
    RowWeights<M_TILES> weights;
    // FlashAttention-2, Algorithm 2, with its loops exchanged: for each tile of K and V.
    for (; stream.live(); stream.step()) {
        stream.wait();
        Scores scores, gradients;
        LowBits low_bits;
        // FlashAttention-2, Algorithm 2, line 13: dP = dO V^T.
        multiply_queries_keys<Dtype, DoutTile, VTile>(gradients, low_bits, dout, warp_row, stream.second());
        // FlashAttention-2, Algorithm 2, line 10: S = Q K^T.
        multiply_queries_keys<Dtype, QTile, KTile>(scores, low_bits, queries, warp_row, stream.first());
        const int kv_first = stream.tile().kv_first;
        // FlashAttention-2, Algorithm 2, lines 11 and 14: P = exp(S - lse), dS = P (dP - delta).
        if (KNOWS_FULL && stream.tile().kind == FULL)
            differentiate<true>(pairs, kv_first, q_first + warp_row, of_rows, scores, low_bits, gradients, weights);
        else
            differentiate<false>(pairs, kv_first, q_first + warp_row, of_rows, scores, low_bits, gradients, weights);
        // FlashAttention-2, Algorithm 2, line 15: dQ += dS K, in registers.
        multiply<KTile>(dq, gradients, stream.first());
    }
    const BlockOfRows done = found_again(work, params);
    const int first = done.q_first + warp_row;
    Element* target = params.dq + done.batch_index * params.dq_stride_batch + done.head * params.dq_stride_head +
                      (done.q_start + (long long)first) * params.dq_stride_row;
    store_gradient<QOrder, HEAD_DIM>(target, params.dq_stride_row, done.q_len - first, dq, [&](int m, int r) {
        const float excess = weights.excess(m, r, of_rows[m][r].exponent);
        with_statistics(done, m, r, [&](RowStatistics& row) { weights.tell(row, excess); });
        return context.scale * (1 - excess);
    });
}
