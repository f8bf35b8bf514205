// causal, backward pass: bf16, head dim 128, for sm_90a.
// Written by attncc 0.2.0 from specs/causal.attn (sha256 f8341f755b9dc744). Do not edit.
//
// Contents, by line:
//    55  sizes
//    79  leaf code: element.cuh 81, math.cuh 85, bf16.cuh 133, recompute_softmax.cuh 152, replay_all.cuh 168,
//        barrier.cuh 175, grid.cuh 234, key_grid.cuh 307, kv_blocks.cuh 317, tile_kind.cuh 353, query_tiles.cuh 357,
//        backward_pipeline.cuh 433, blocks_late.cuh 615, all_add.cuh 652, factors_are_one.cuh 661, finished.cuh 668,
//        layout.cuh 688, learns_nothing.cuh 709, add_vector.cuh 724, output.cuh 732, dq_semaphore.cuh 803,
//        row_blocks.cuh 878, rotation.cuh 890, words.cuh 900, statistics_split_bf16.cuh 918, tiles_1d.cuh 970,
//        tma.cuh 994, tma_1d.cuh 1023, cluster_of_two.cuh 1040, transposed.cuh 1155, warpgroup.cuh 1204, wgmma.cuh 1239
//  1324  causal: Params 1326, Context 1344, make_context 1352, Row 1357, make_row 1361, keep 1370, ScoreGradient 1377,
//        QBounds 1383, q_bounds 1387
//  1402  what the warpgroups share
//  1445  the producer
//  1693  consumers of keys
//  1695  pairs of keys and queries: probs_kept.cuh 1697
//  1917  products of the consumers of keys
//  2190    FlashAttention-2, Algorithm 2, lines 8 and 9: for each tile of Q, dO, lse and delta.
//  2240    FlashAttention-2, Algorithm 2, line 7: dK = 0, dV = 0.
//  2250    FlashAttention-2, Algorithm 2, line 18: write dK and dV.
//  2257    FlashAttention-2, Algorithm 2, lines 5 and 6: for each block of keys, K and V.
//  2299    FlashAttention-2, Algorithm 2, line 10: S^T = K Q^T.
//  2306    FlashAttention-2, Algorithm 2, line 11: P = exp(S - lse).
//  2311    FlashAttention-2, Algorithm 2, lines 13 and 12: dP^T = V dO^T; dV += P^T dO, as far as P is ready.
//  2315    FlashAttention-2, Algorithm 2, line 14: dS = P (dP - delta).
//  2334    FlashAttention-2, Algorithm 2, lines 12 and 16: the rest of dV; dK += dS^T Q.
//  2400  dQ
//  2472    FlashAttention-2, Algorithm 2, line 15: dQ += dS K, added to memory in fp32.
//  2542  the kernel
//  2558    FlashAttention-3, Algorithm 3, consumer warpgroups: S, P, dP and dS of each tile, dV and dK.
//  2562    FlashAttention-3, Algorithm 3, dQ writer: here a warpgroup, which also multiplies dS K.
//  2567    FlashAttention-3, Algorithm 3, producer: loads K, V, Q and dO by TMA.
//
// Causal attention, bottom-right aligned: with q_len < kv_len (a chunk of a longer sequence, decoding) the last query
// sees every key. For top-left alignment write `keep if causal_top_left()`.
//
// variant causal
//   keep if causal()
//
// schedule
//   family = hopper, loop = kv_outer, block_q = 64, block_kv = 128,
//   stages = 2, warps = 8, split_kv = 1, skip = auto
//
// tiles
//   q_begin = min(max((kv_first - q_offset), 0), q_len)
//   full_begin = min(max((kv_last - q_offset), 0), q_len)
//   full_end = q_len
//   q_end = q_len

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

// ---------------------------------------------------------------- sizes

constexpr int BLOCK_Q = 64;
constexpr int BLOCK_KV = 128;
constexpr int STAGES = 2, KEY_STAGES = 1;
constexpr int HEAD_DIM = 128, PADDED_HEAD_DIM = 128;
constexpr int VALUE_HEAD_DIM = 128, PADDED_VALUE_HEAD_DIM = 128;
constexpr int ROW_ALIGNMENT = BLOCK_Q;
constexpr int DQ_COLUMNS = 64;  // of dQ that are computed at once

constexpr bool IN_CLUSTER = true;  // of blocks may share tiles, each with half of the columns of dQ

constexpr int CONSUMERS = 2;                    // warpgroups that own keys; one more adds to dQ, one loads
constexpr int THREADS = 128 * (CONSUMERS + 2);
constexpr int KEY_SHARES = 2;  // of a block, of one consumer each; or one that both own, a gradient each
constexpr int OWN_KEYS = BLOCK_KV / KEY_SHARES;  // of each consumer
constexpr int STRIPS = OWN_KEYS / 64;        // a product has 64 rows
constexpr int PARTS = 1, PART_Q = BLOCK_Q / PARTS;  // whose scores a consumer has at once
constexpr int Q_TILES = PART_Q / 8;          // of 8 columns each: scores,
constexpr int STEPS = PART_Q / 16;           // of a product over the queries
constexpr int SCORE_STEP = 8;  // of which so many at once become exponents, and of a tile
constexpr int WHOLE_STEP = Q_TILES;  // of which all is kept so many
constexpr int D_TILES = PADDED_HEAD_DIM / 8, VALUE_D_TILES = PADDED_VALUE_HEAD_DIM / 8;  // dK and dV

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

DEVICE float uniform_float(float x) { return __int_as_float(uniform(__float_as_int(x))); }

/// x, so that the compiler doesn't compute ahead of a loop what depends on it, which takes registers from the loop.
DEVICE int opaque(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

DEVICE long long opaque_long(long long x) {
    asm volatile("" : "+l"(x));
    return x;
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
    static constexpr float NO_WEIGHT = 1e30f;  // exponents below minus this underflow to 0
    static constexpr float LEAST_SCALE = 0x1p-100f, MOST_SCALE = 0x1p100f;  // whose reciprocals are precise in bf16 parts
    static constexpr int WORDS = 1;  // of 32 bits, for two neighbouring columns

    static DEVICE unsigned pack(float low, float high) {
        unsigned word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }

    static DEVICE float low(unsigned word) { return __uint_as_float(word << 16); }
    static DEVICE float high(unsigned word) { return __uint_as_float(word & 0xffff0000); }

    static DEVICE void words(unsigned (&word)[1], float x, float y) { word[0] = pack(x, y); }
};

// ---- recompute_softmax.cuh
/// P again, from scores less lse. `unit`: natural units in one unit of the scores, of any sign.
struct Recompute {
    static constexpr bool HAS_DELTA = true;  // which is subtracted from dP

    float factor;

    DEVICE explicit Recompute(float unit) : factor(unit * LOG2_E) {}

    /// What `prob` takes of a pair that is kept; of others it takes -inf.
    DEVICE float exponent(float score) const { return score * factor; }

    /// dP/dS, but for what the row's sum has in it.
    static DEVICE float dscore_factor(float, float prob) { return prob; }
};

// ---- replay_all.cuh
/// No dropout. The interface is that of replay_rows.cuh and replay_keys.cuh.
template <int M_TILES, int KEYS> struct Replay {
    DEVICE void begin_tile(int) {}
    DEVICE bool keeps(int, int, int, int) const { return true; }
};

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

/// A position in a ring of stages in one register, where dividing costs less than another.
template <int STAGES> struct RingCounter {
    unsigned turn = 0;

    DEVICE int stage() const { return turn % STAGES; }
    DEVICE unsigned parity() const { return turn / STAGES % 2; }
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

/// Whether k and v may have rows, of any contents, behind a sequence's last key: other sequences', or a cache's.
template <class Params> DEVICE bool rows_follow_keys(const Params& params) {
    return params.cu_seqlens_kv != nullptr || params.kv_lens != nullptr;
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

// ---- key_grid.cuh
/// What a block of the backward pass that owns keys works on: `kv_len` keys of one sequence and kv head, and its rows.
struct KeyWork {
    int sequence;     // b
    int batch_index;  // into the batch axis of the tensors: 0 in a packed batch
    int kv_head, kv_block;
    int part;  // which of its gradients, where one block makes dK and another dV
    int q_start, q_len, kv_start, kv_len;
};

// ---- kv_blocks.cuh
/// Block `index` of keys in the order of persistent kernels: the heads of one swizzle, whose queries fit the L2 cache, go
/// together; among them the first keys go first, since a causal mask gives them the most queries. Where sums have an order
/// (dq_semaphore.cuh) the last go first: under such a mask they begin with later tiles than those behind them in the order. Blocks 2i and
/// 2i + 1 of a pair are neighbours of one head.
template <int BLOCK_KV, class Cluster, class Params> DEVICE KeyWork find_key_work(const Params& params, int index) {
    const int heads = (params.cu_seqlens_q == nullptr ? opaque(params.batch) : 1) * params.num_kv_heads;
    const int together = Cluster::blocks(), rank = index % together;
    const int kv_blocks = opaque(params.kv_blocks) / together;  // what is computed of it would take registers between blocks
    index /= together;
    const int swizzle = index / (params.head_swizzle * kv_blocks), first = swizzle * params.head_swizzle;
    const int here = min(params.head_swizzle, heads - first);
    index -= first * kv_blocks;
    KeyWork work;
    work.part = 0;
    work.kv_block = (params.dq_semaphore == nullptr ? index / here : kv_blocks - 1 - index / here) * together + rank;
    const int head = first + index % here;
    work.kv_head = head % params.num_kv_heads;
    work.sequence = work.batch_index = head / params.num_kv_heads;
    find_sequence<BLOCK_KV>(work.sequence, work.kv_block, params.cu_seqlens_kv, params.kv_len, params.batch);
    find_rows(work, params);
    return work;
}

/// The block to work on after `index`, or after -1 the first; -1 if none is left. Where all take alike long, each thread block
/// has its share of them. Else a counter has the next, so whoever gets a number runs, and so do those with smaller ones. The
/// warp calls together.
template <class Params> DEVICE int next_key_tile(const Params& params, int index) {
    if (params.next_block == nullptr)
        index = index < 0 ? block_index() : index + gridDim.x;
    else if (thread_index() % 32 == 0)
        index = atomicAdd(params.next_block, 1);
    index = __shfl_sync(~0u, index, 0);
    return index < params.blocks ? index : -1;
}

// ---- tile_kind.cuh
// What a tile holds: no kept pair, anything, only kept pairs.
enum TileKind { EMPTY, PARTIAL, FULL };

// ---- query_tiles.cuh
/// The queries that keep some key of a range, as slots (see tiles_1d.cuh): [begin, end), of which [full_begin, full_end) keep
/// all of them.
struct QueryRange {
    int begin, full_begin, full_end, end;
};

/// A tile of queries as two consumers of keys see it: whether there are keys that it keeps, and whether it keeps all of them, in
/// a bit for each consumer. A tile begins at a multiple of 64 slots: `word` holds the rest in the bits below.
struct QueryTile {
    int head, word;
    bool ends_head;  // the last of it

    static constexpr int FULL_AT = 2, LAST = 16, SHARED = 32;

    DEVICE int slot() const { return word & -64; }
    DEVICE unsigned live() const { return word & 3; }
    DEVICE unsigned full() const { return word >> FULL_AT & 3; }
    DEVICE bool last() const { return word & LAST; }      // of the block of keys
    DEVICE bool shared() const { return word & SHARED; }  // its last rows belong to another sequence
};

/// The live tiles of a block of keys in ascending order, head after head of the group. The lanes of a warp classify 16 tiles at
/// once, each for the keys of one consumer. `Keys` knows heads and mask: `last_head()`, and for the keys of the lane's consumer
/// `range()` in the head that `begin_head(head)` was told, and `kind(head, slot)`.
template <int BLOCK_Q, class Keys> struct QueryTiles {
    const Keys& keys;
    int head;
    int next = 0, end = 0;        // of the head: the first slot that isn't classified, and that behind the last
    unsigned live = 0, full = 0;  // of the 16 tiles before `next`, two bits each; those handed out are no longer live

    DEVICE QueryTiles(const Keys& keys, int first_head) : keys(keys), head(first_head - 1) { find(); }

    /// Whether a tile is left.
    DEVICE bool more() const { return live != 0; }

    DEVICE QueryTile take() {
        const int shift = (__ffs(live) - 1) & ~1, slot = next + (shift / 2 - TILES) * BLOCK_Q;
        QueryTile tile = {head, (int)(slot | (live >> shift & 3) | (full >> shift & 3) << QueryTile::FULL_AT), false};
        live &= ~(3u << shift);
        find();
        if (!more()) tile.word |= QueryTile::LAST;
        tile.ends_head = !more() | head != tile.head;
        return tile;
    }

private:
    static constexpr int TILES = 16;

    DEVICE void find() {
        while (live == 0) {
            if (next < end) {
                classify();
            } else {
                if (head == keys.last_head()) return;
                begin_head();
            }
        }
    }

    DEVICE void begin_head() {
        ++head;
        keys.begin_head(head);
        const QueryRange range = keys.range();
        next = __reduce_min_sync(~0u, range.begin) / BLOCK_Q * BLOCK_Q;
        end = __reduce_max_sync(~0u, range.end);
    }

    DEVICE void classify() {
        const TileKind kind = keys.kind(head, next + thread_index() % 32 / 2 * BLOCK_Q);
        live = __ballot_sync(~0u, kind != EMPTY);
        full = __ballot_sync(~0u, kind == FULL);
        next += TILES * BLOCK_Q;
    }
};

// ---- backward_pipeline.cuh
/// What the producer tells of a stage of queries.
struct QueryTileInfo {
    int place;  // of the tile's dQ, see `FirstStores`
    QueryTile tile;
};

/// What is to be done with a stage of keys: nothing any more, or a gradient to be stored, with DIFFERENTIATE after tiles of
/// queries. Without it no query keeps any of the keys, and nothing is loaded. VALUES_PARITY: that of the values' barrier;
/// KEYS_PARITY: that of the keys' own.
enum Order { END = 0, VALUES_PARITY = 1, STORE = 2, DIFFERENTIATE = 4, KEYS_PARITY = 8 };

/// The barriers and tile info of the backward pass in shared memory. Only the producer walks tiles. KEY_SHARES: of a block of keys, one
/// for each consumer; of one that both own, one tells the other what dS is a multiple of. KEY_BARRIERS: those that belong to keys besides,
/// and RANGE_STAGES: see who derives from it (blocks_late.cuh, blocks_ahead.cuh).
template <int KEY_STAGES, int STAGES, int KEY_SHARES, int KEY_BARRIERS, int RANGE_STAGES> struct BackwardPipeline {
    static constexpr int WORK_BYTES = 32 + 16;
    static constexpr int OF_KEYS = 2 * KEY_STAGES, QUERIES = OF_KEYS + KEY_BARRIERS, DOUTS = QUERIES + 2 * STAGES;
    static constexpr int DSCORES = DOUTS + 2 * STAGES, DSCORE_FACTORS = DSCORES + 2 * STAGES;
    static constexpr int OTHERS = DSCORE_FACTORS + (KEY_SHARES == 1 ? STAGES : 0);
    static constexpr int SCHEDULED = OTHERS + (IN_CLUSTER ? STAGES : 0), BARRIERS = SCHEDULED + (IN_CLUSTER ? 2 : 0);
    static constexpr int WORK_AT = (8 * BARRIERS + 15) / 16 * 16, QUERY_NOTES_AT = WORK_AT + WORK_BYTES * KEY_STAGES;
    static constexpr int RANGES_AT = QUERY_NOTES_AT + 16 * 2 * STAGES, ASKED_AT = RANGES_AT + 16 * KEY_SHARES * RANGE_STAGES;
    static constexpr int SCHEDULED_AT = ASKED_AT + 16, BYTES = SCHEDULED_AT + (IN_CLUSTER ? 16 : 0), NO_STAGE = -1;
    static constexpr int CONSUMER_WARPS = 8, DQ_CONSUMER_WARPS = 4;  // warps that own keys, warps that add to dQ
    static constexpr int DSCORES_WARPS = 4 * KEY_SHARES;    // warps that make dS
    static constexpr int DSCORES_ARRIVALS = KEY_SHARES == 1 ? 32 * DSCORES_WARPS : DSCORES_WARPS;

    unsigned base;

    DEVICE unsigned keys_full(int stage) const { return base + 8 * stage; }
    DEVICE unsigned keys_empty(int stage) const { return base + 8 * (KEY_STAGES + stage); }
    DEVICE unsigned queries_full(int stage) const { return base + 8 * (QUERIES + stage); }
    DEVICE unsigned queries_empty(int stage) const { return base + 8 * (QUERIES + STAGES + stage); }
    DEVICE unsigned douts_full(int stage) const { return base + 8 * (DOUTS + stage); }
    DEVICE unsigned douts_empty(int stage) const { return base + 8 * (DOUTS + STAGES + stage); }
    DEVICE unsigned dscores_full(int stage) const { return base + 8 * (DSCORES + stage); }
    DEVICE unsigned dscores_empty(int stage) const { return base + 8 * (DSCORES + STAGES + stage); }

    DEVICE unsigned dscore_factors_full(int stage) const { return base + 8 * (DSCORE_FACTORS + stage); }

    /// dS of the other block of a pair.
    DEVICE unsigned others_full(int stage) const { return base + 8 * (OTHERS + stage); }

    // The block of keys that the first block of a cluster has got for both, as the second is told.
    DEVICE unsigned scheduled_full() const { return base + 8 * SCHEDULED; }
    DEVICE unsigned scheduled_empty() const { return base + 8 * (SCHEDULED + 1); }
    DEVICE unsigned scheduled_at() const { return base + SCHEDULED_AT; }
    DEVICE int scheduled() const {
        int index, unused;
        take_pair(scheduled_at(), index, unused);
        return index;
    }

    /// `writers`: who say what a stage of keys is about.
    DEVICE void init_keys(int writers) const {
        for (int stage = 0; stage < KEY_STAGES; ++stage) {
            barrier_init(keys_full(stage), writers);
            barrier_init(keys_empty(stage), 32 * (CONSUMER_WARPS + DQ_CONSUMER_WARPS));
        }
    }

    /// `blocks`: the warps of how many leave a stage before it is written to again.
    DEVICE void init_queries(int blocks) const {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(queries_full(stage), 1);
            barrier_init(queries_empty(stage), CONSUMER_WARPS * blocks);
            barrier_init(douts_full(stage), 1);
            barrier_init(douts_empty(stage), CONSUMER_WARPS * blocks);
            barrier_init(dscores_full(stage), DSCORES_ARRIVALS);
            barrier_init(dscores_empty(stage), DQ_CONSUMER_WARPS * blocks);
            if (IN_CLUSTER) barrier_init(others_full(stage), 1);
            if (KEY_SHARES == 1) barrier_init(dscore_factors_full(stage), 32 * (CONSUMER_WARPS - DSCORES_WARPS));
        }
        if (IN_CLUSTER) {
            barrier_init(scheduled_full(), 1);
            barrier_init(scheduled_empty(), 1);
        }
        barrier_init_done();
    }

    /// What a stage of keys is about, and what is to be done with it. The first is not kept in registers: who needs it reads it.
    DEVICE void write(int stage, const KeyWork& work) const {
        const unsigned address = base + WORK_AT + WORK_BYTES * stage;
        put_four(address, work.sequence, work.batch_index, work.kv_head, work.kv_block);
        put_four(address + 16, work.q_start, work.q_len, work.kv_start, work.kv_len);
    }

    DEVICE void write_order(int stage, int order) const {
        put_pair(base + WORK_AT + WORK_BYTES * stage + 32, order, 0);
    }

    DEVICE KeyWork work(int stage) const {
        const unsigned address = base + WORK_AT + WORK_BYTES * stage;
        KeyWork work;
        work.part = 0;
        take_four(address, work.sequence, work.batch_index, work.kv_head, work.kv_block);
        take_four(address + 16, work.q_start, work.q_len, work.kv_start, work.kv_len);
        return work;
    }

    DEVICE int order(int stage) const {
        int order, unused;
        take_pair(base + WORK_AT + WORK_BYTES * stage + 32, order, unused);
        return order;
    }

    // What a consumer's keys look at: one warp asks for it by stage and head, a warp for each consumer answers. Between the question and the
    // answers all of them wait for each other.
    static DEVICE void wait_for_ranges() { named_wait(4, 32 * (1 + KEY_SHARES)); }

    DEVICE void ask(int stage, int head) const { put_pair(base + ASKED_AT, stage, head); }
    DEVICE void asked(int& stage, int& head) const { take_pair(base + ASKED_AT, stage, head); }

    DEVICE void write(int stage, int share, const QueryRange& range) const {
        put_four(range_at(stage, share), range.begin, range.full_begin, range.full_end, range.end);
    }

    DEVICE QueryRange range(int stage, int share) const {
        QueryRange range;
        take_four(range_at(stage, share), range.begin, range.full_begin, range.full_end, range.end);
        return range;
    }

    // A stage of queries has tile info twice, for its even and odd turns: who adds to dQ reads one when the next may be there already.
    DEVICE void write(int stage, unsigned turn, const QueryTileInfo& info) const {
        const unsigned address = query_tile_info_at(stage, turn);
        put_pair(address, info.place, info.tile.word);
        put_pair(address + 8, info.tile.head, info.tile.ends_head);
    }

    /// By a whole warp. The lane that reads is the one that `warp_arrive` lets arrive at the stage's empty barrier.
    DEVICE QueryTileInfo query_tile_info(int stage, unsigned turn) const {
        QueryTileInfo info;
        take_pair(query_tile_info_at(stage, turn), info.place, info.tile.word);
        return info;
    }

    /// The head of a tile, for those who need it.
    DEVICE int head(int stage, unsigned turn) const {
        int head, unused;
        take_pair(query_tile_info_at(stage, turn) + 8, head, unused);
        return head;
    }

    /// Whether the tile is the last of its head.
    DEVICE bool ends_head(int stage, unsigned turn) const {
        int head, ends;
        take_pair(query_tile_info_at(stage, turn) + 8, head, ends);
        return ends;
    }

protected:
    DEVICE unsigned range_at(int stage, int share) const {
        return base + RANGES_AT + 16 * (RANGE_STAGES > 1 ? stage * KEY_SHARES + share : share);
    }

    DEVICE unsigned query_tile_info_at(int stage, unsigned turn) const {
        return base + QUERY_NOTES_AT + 16 * (stage + turn * STAGES);
    }

    static DEVICE void put_pair(unsigned address, int x, int y) {
        asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
    }

    static DEVICE void put_four(unsigned address, int x, int y, int z, int w) {
        asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
    }

    static DEVICE void take_four(unsigned address, int& x, int& y, int& z, int& w) {
        asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(address) : "memory");
    }

    static DEVICE void take_pair(unsigned address, int& x, int& y) {
        x = y = 0;
        if (threadIdx.x % 32 == 0)
            asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(address) : "memory");
        x = uniform(x);
        y = uniform(y);
    }
};

// ---- blocks_late.cuh
/// Where the producer asks for a block of keys when it has loaded the tiles of the one before, and waits for what that looks at. There is
/// one stage of values.
template <int KEY_STAGES, int STAGES, int KEY_SHARES>
struct Blocks : BackwardPipeline<KEY_STAGES, STAGES, KEY_SHARES, 2, 1> {
    using Base = BackwardPipeline<KEY_STAGES, STAGES, KEY_SHARES, 2, 1>;
    static constexpr int VALUE_STAGES = 1, BYTES = Base::BYTES;
    static constexpr int CONSUMERS_OF_WEIGHTS = 2;  // each writes its own, when it begins a block

    DEVICE unsigned values_full() const { return this->base + 8 * Base::OF_KEYS; }
    DEVICE unsigned values_empty() const { return this->base + 8 * (Base::OF_KEYS + 1); }

    DEVICE void init(int blocks) const {
        this->init_keys(1);
        barrier_init(values_full(), 1);
        barrier_init(values_empty(), Base::CONSUMER_WARPS);
        this->init_queries(blocks);
    }

    DEVICE void wait_for_values(int order) const { barrier_wait(values_full(), order & VALUES_PARITY); }
    DEVICE void leave_values() const { warp_arrive(values_empty()); }

    /// How many heads of q share the keys. Divided anew each time: a producer has few registers.
    template <class Params> DEVICE int group(const Params& params, int) const {
        return params.num_heads / opaque(params.num_kv_heads);
    }

    /// What a block looks at in a head.
    template <class Params> DEVICE void wait_for_answers(const Params&, int stage, unsigned, int head, int) const {
        if (thread_index() % 32 == 0) this->ask(stage, head);
        Base::wait_for_ranges();
        Base::wait_for_ranges();
    }

    DEVICE void answer(int) const { Base::wait_for_ranges(); }
};

// ---- all_add.cuh
/// Where the sum of dQ begins with zeros: all add. The interface is that of first_stores.cuh.
struct FirstStores {
    template <class Params> static DEVICE int place(const Params&, int row_block) { return row_block; }
    static DEVICE int row_block(int place) { return place; }

    template <class Params> DEVICE bool stores(const Params&, int) { return false; }
};

// ---- factors_are_one.cuh
/// What dS of the raw score is to that of the final one: the same. The interface is that of factors_kept.cuh.
template <int N_TILES> struct Factors {
    DEVICE explicit Factors(float (&)[1][N_TILES][4]) {}
    template <int STEP> DEVICE void rotate() {}
};

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

/// Adds to a count. What the warp has done comes before. Its lanes call together.
DEVICE void count_finished(int* count, int more) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(count), "r"(more) : "memory");
}

// ---- layout.cuh
// Tiles in shared memory: no padding, and an access of eight rows at one column meets all 32 banks.

DEVICE unsigned shared_address(const void* pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

/// A tile of ROW_COUNT rows (a multiple of 8) of BYTES_A_ROW bytes (a multiple of 32), cut by columns into panels: as
/// many of 128 bytes as fit, then one of 64, then one of 32. Within a panel rows follow each other, and the number of a
/// 16-byte chunk is XORed with the number of its 128-byte line, as far as the panel has chunks.
template <int ROW_COUNT, int BYTES_A_ROW> struct SharedTile {
    static constexpr int ROWS = ROW_COUNT, ROW_BYTES = BYTES_A_ROW, BYTES = ROWS * ROW_BYTES;

    /// Offset of a row's chunk within a panel of WIDTH bytes.
    template <int WIDTH> static DEVICE unsigned in_panel(unsigned row, unsigned chunk) {
        const unsigned line = row / (128 / WIDTH);
        return row * WIDTH + (chunk ^ line % (WIDTH / 16)) * 16;
    }

    /// Where a panel starts whose first chunk is `chunk`.
    static constexpr DEVICE unsigned panel(int chunk) { return chunk * 16 * ROWS; }
};

// ---- learns_nothing.cuh
/// Of the rows of a tile, two are this lane's own in the end: `side` 0 and 1.
DEVICE int own_query(int side) { return threadIdx.x % 32 / 4 * 8 + threadIdx.x % 4 * 2 + side; }

/// No learnable input is read. The interface is that of the printed struct Learned.
struct NothingLearned {
    DEVICE bool in_one_place() const { return true; }
    template <class... Pair> DEVICE void apart(const Pair&...) {}
    template <class... Pair> DEVICE void begin_tile(const Pair&...) {}
    template <class... Pair> DEVICE void pair(const Pair&...) {}
    template <class... Pair> DEVICE void row(const Pair&...) {}
    template <class... Pair> DEVICE void tile(const Pair&...) {}
    template <class... Pair> DEVICE void head(const Pair&...) {}
};

// ---- add_vector.cuh
// Adding up in global memory, four floats at once: sm_90 and later.

DEVICE void add_four(float* address, const float (&x)[4]) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"l"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
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

/// Of these rows, in fours, each lane owns the one of this number.
DEVICE int own_row() { return threadIdx.x % 4; }

// ---- dq_semaphore.cuh
// Additions to global memory in an order that doesn't depend on how fast thread blocks are. Blocks of keys that add to the same
// tiles have an order: at each tile, those ahead add first. All go through their tiles in ascending order, and each has a
// number in memory that says how far it is: everything below has been added, by it and by those ahead of it.

DEVICE int load_relaxed(const int* address) {
    int x;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
    return x;
}

DEVICE void store_relaxed(int* address, int x) {
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(address), "r"(x) : "memory");
}

/// What the warp has done comes before what its lanes store from now on, and what other thread blocks did before they stored what has
/// been loaded comes before what the warp does now.
DEVICE void order_memory() {
    __syncwarp();
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/// The semaphore of dQ, as FlashAttention's deterministic backward has it: the place of a warp in that order. Its lanes
/// call together.
struct DqSemaphore {
    static constexpr int DONE = 0x7fffffff;  // by the block itself: who finds it looks at the next

    int* own;         // the number of the warp and its block; those of the blocks ahead follow, all of them 0 in the beginning
    int ahead;        // how many there are
    int nearest = 1;  // of them that may not be done
    int granted = 0;  // the blocks ahead have added everything below

    /// Everything below the tile has been added, which is told; waits until all blocks ahead have added to it, or won't. They are asked
    /// while what was added is on its way: one fence orders both.
    DEVICE void take_turn(int tile) {
        const int known = min(tile, granted);
        const int number = granted > tile ? DONE : ask();
        order_memory();
        tell(known);
        if (granted <= tile) take(number);
        if (granted <= tile) {
            do take(ask());
            while (granted <= tile);
            order_memory();
        }
        if (known < tile) tell(tile);  // there was nothing to add to what is below: it is done when it is for those ahead
    }

    /// Nothing more is added.
    DEVICE void leave() const {
        order_memory();
        tell(DONE);
    }

private:
    DEVICE void tell(int number) const {
        if (threadIdx.x % 32 == 0) store_relaxed(own, number);
    }

    /// Each lane another block's number.
    DEVICE int ask() const {
        const int place = nearest + threadIdx.x % 32;
        return place <= ahead ? load_relaxed(own + place) : DONE;
    }

    /// What is known by these numbers: the nearest block that isn't done speaks for those ahead of it.
    DEVICE void take(int number) {
        const unsigned working = __ballot_sync(~0u, number != DONE);
        if (working != 0)
            granted = __shfl_sync(~0u, number, __ffs(working) - 1);
        else if ((nearest += 32) > ahead)
            granted = DONE;
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

// ---- rotation.cuh
/// Moves the first STEP column tiles behind the others.
template <int STEP, class Word, int N_TILES, int WORDS> DEVICE void rotate_columns(Word (&tiles)[N_TILES][WORDS]) {
    Word first[STEP][WORDS];
    memcpy(first, tiles, sizeof(first));
#pragma unroll
    for (int i = 0; i < WORDS * (N_TILES - STEP); ++i) tiles[i / WORDS][i % WORDS] = tiles[i / WORDS + STEP][i % WORDS];
    memcpy(tiles[N_TILES - STEP], first, sizeof(first));
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

DEVICE void store_words(unsigned address, const unsigned (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// ---- statistics_split_bf16.cuh
// What the backward pass knows of a row of Q, lse and delta, as operands of wgmma. A broadcast load from shared memory costs
// each warp a cycle a value; a product with ones costs one k-step. So S and dP get a ninth: rows of B are -lse and -delta in
// parts of 16 bits, together as exact as fp32, and A picks one of them.

/// Eight 16-bit numbers for a row: -lse in parts 0 to 2 and 6, which repeats 0; -delta in parts 3 to 5. They are finite, since
/// those that A doesn't pick meet its zeros. Of a row without weight (lse -inf) they make all
/// probabilities 0.
template <class Dtype> struct Statistics {
    static constexpr int FLOATS = 4, ROW_BYTES = 4 * FLOATS;
    static constexpr int WEIGHT_BYTES = 256;  // of an A operand: 8 rows, which serve all 64, of columns 0 to 7 and 8 to 15

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

    /// Writes two A operands behind each other, of 64 words each: their products with a row are -lse * lse_weight and
    /// -delta * delta_weight, the latter a number of 8 bits. The row's eight numbers are columns 0 to 7 and again 8 to 15: so two
    /// parts of lse_weight meet all of -lse, and the third its first part. The threads of a warpgroup call.
    static DEVICE void write_weights(unsigned target, float lse_weight, float delta_weight) {
        const SplitBf16 parts(lse_weight);
        const int thread = thread_index() % 128, word = thread % 4;
        const bool delta = thread >= 64, later = thread % 64 >= 32;
        const float part = delta ? 0 : later ? parts.second : parts.first;
        const float delta_part = delta & !later ? delta_weight : 0, third = delta | later ? 0 : parts.third;
        const float low = word == 0 | word == 1 ? part : word == 2 ? delta_part : third;
        const float high = word == 0 ? part : word == 1 | word == 2 ? delta_part : 0;
        store_word(target + 4 * thread, Dtype::pack(low, high));
    }
};

/// Descriptor of rows as B operand: eight of them each 128 bytes, no swizzle; columns 8 to 15 are columns 0 to 7 again.
DEVICE unsigned long long statistics_descriptor(unsigned address) {
    return (unsigned long long)(128 >> 4) << 32 | (address & 0x3ffff) >> 4;
}

/// Descriptor of an A operand of weights: one group of eight rows for all 64; columns 8 to 15 follow 128 bytes behind.
DEVICE unsigned long long weights_descriptor(unsigned address) { return 128 >> 4 << 16 | (address & 0x3ffff) >> 4; }

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

    /// The position of a slot of the sequence.
    static DEVICE int position(int slot) { return slot; }
};

// ---- tma.cuh
// The tensor memory accelerator: one thread asks for a box of a tensor, which arrives swizzled in shared memory as a
// panel of a `SharedTile`. Maps are made by the launcher: axes (column, row, head, batch), boxes of 64 columns.

struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

/// The coordinate of entry `index` of an axis. Entries that share memory, their stride being 0, are one to the map.
DEVICE int coordinate(int index, long long stride) { return stride == 0 ? 0 : index; }

/// The box from (column, row) on, with the map's number of rows; columns and rows outside the tensor become zeros.
DEVICE void tma_load(unsigned target, const TensorMap& map, unsigned barrier, int column, int row, int head,
                     int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];"
                 ::"r"(target), "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch) : "memory");
}

/// Bytes as they are, a multiple of 16. `barrier` expects them already.
DEVICE void bulk_load(unsigned target, const void* source, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
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

/// Loads such a tile; `barrier` counts its bytes.
template <class Tile, class Order>
DEVICE void tma_load_ordered(unsigned target, const TensorMap& map, unsigned barrier, int position, int head,
                             int batch) {
    barrier_arrive_expecting(barrier, Tile::BYTES);
    tma_load_panels<Tile, Order>(target, map, barrier, position, head, batch);
}

// ---- cluster_of_two.cuh
DEVICE unsigned cluster_blocks() {
    unsigned blocks;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    return blocks;
}

DEVICE unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(rank));
    return rank;
}

/// Waits for all threads of the cluster.
DEVICE void cluster_wait() { asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory"); }

/// The address, among all of the cluster, of what block `rank` has at that one.
DEVICE unsigned place_in(unsigned address, unsigned rank) {
    unsigned place;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(address), "r"(rank));
    return place;
}

DEVICE void barrier_arrive_there(unsigned place) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(place) : "memory");
}

/// Arrives at the barrier that block `rank` of the cluster has in that place.
DEVICE void barrier_arrive_at(unsigned barrier, unsigned rank) { barrier_arrive_there(place_in(barrier, rank)); }

/// `tma_load` to the same place in both blocks of a cluster, whose barriers count the bytes each.
DEVICE void tma_load_for_both(unsigned target, const TensorMap& map, unsigned barrier, int column, int row, int head,
                              int batch) {
    asm volatile(
        "{ .reg .b16 both;\n"
        "mov.b16 both, 3;\n"
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], both; }" ::"r"(target),
        "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
        : "memory");
}

/// Copies bytes to `target` in block `rank` of the cluster, whose `barrier` expects them.
DEVICE void send_to(unsigned target, unsigned source, int bytes, unsigned barrier, unsigned rank) {
    asm volatile(
        "{ .reg .b32 place, full;\n"
        "mapa.shared::cluster.u32 place, %0, %4;\n"
        "mapa.shared::cluster.u32 full, %3, %4;\n"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [place], [%1], %2, [full]; }" ::"r"(target),
        "r"(source), "r"(bytes), "r"(barrier), "r"(rank)
        : "memory");
}

/// Sends a word.
DEVICE void send_word_to(unsigned target, int word, unsigned barrier, unsigned rank) {
    asm volatile(
        "{ .reg .b32 place, full;\n"
        "mapa.shared::cluster.u32 place, %0, %3;\n"
        "mapa.shared::cluster.u32 full, %2, %3;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [place], %1, [full]; }" ::"r"(target),
        "r"(word), "r"(barrier), "r"(rank)
        : "memory");
}

/// Releases stages for a warp (CUTLASS: consumer_release): each of its first lanes tells a block of the cluster, the first one its own, which alone reads what
/// the block's producer writes. How far that block's barriers are is found once.
struct ConsumerRelease {
    const bool tells;
    const unsigned distance;

    /// `address`: any in shared memory.
    DEVICE explicit ConsumerRelease(unsigned address) : tells((unsigned)thread_index() % 32 < cluster_blocks()),
          distance(place_in(address, tells ? cluster_rank() ^ (unsigned)thread_index() % 32 : 0) - address) {}

    /// `warp_arrive` at the barriers of all blocks.
    DEVICE void arrive(unsigned barrier) const {
        if (tells) barrier_arrive_there(barrier + distance);
    }
};

/// Two thread blocks of a cluster that go through the same tiles, of keys or backward of queries: each loads every other panel of
/// a tile, for both. Where a launch has no clusters, each block is one of its own.
struct Cluster {
    /// How many have a stage in common: none writes to it before the warps of all have left it.
    static DEVICE int blocks() { return cluster_blocks(); }
    static DEVICE int rank() { return cluster_rank(); }

    /// No block may be written to before its barriers are there, or when it has ended.
    static DEVICE void begin() {
        if (cluster_blocks() > 1) cluster_wait();
    }

    /// `tma_load_panels`; the block whose rank is `first` loads the first panel.
    template <class Tile, class Order>
    static DEVICE void load_panels(unsigned target, const TensorMap& map, unsigned barrier, int position, int head,
                                   int batch, unsigned first) {
        if (cluster_blocks() == 1) return tma_load_panels<Tile, Order>(target, map, barrier, position, head, batch);
        constexpr int PANELS = Tile::ROW_BYTES / 128;
        UNROLL for (int i = 0; i < PANELS; i += 2) {
            const int panel = i + (cluster_rank() ^ first);
            if (panel >= PANELS) return;
            tma_load_for_both(target + panel * Tile::ROWS * 128, map, barrier, panel * 64, position, head, batch);
        }
    }

    /// Copies bytes to `target` of the other block, whose `barrier` expects them.
    static DEVICE void send(unsigned target, unsigned source, int bytes, unsigned barrier) {
        send_to(target, source, bytes, barrier, cluster_rank() ^ 1);
    }
    static DEVICE void tell(unsigned target, int word, unsigned barrier) {
        send_word_to(target, word, barrier, cluster_rank() ^ 1);
    }
    static DEVICE void arrive_at_other(unsigned barrier) { barrier_arrive_at(barrier, cluster_rank() ^ 1); }
};

// ---- transposed.cuh
// What a warp does with its part of a transposed tile of scores: 16 keys, whose fragments (see mma_16bit.cuh) have queries as
// columns. Packed by twos of neighbouring queries, fragments n and n + 1 are an A operand of a product over the queries.

/// `thread_index`, as a number that isn't negative: remainders of it take one instruction.
DEVICE unsigned own_thread() { return thread_index(); }

/// Visits two neighbouring queries of each key that the lane holds: visit(n, r, column, x, y), where r is the half of 8 keys, x the
/// score of the query at `column`, counted from the tile's first, and y that of the next. Keys vary fastest, so that what
/// depends on the query alone is computed once.
template <int N_TILES, class Visit> DEVICE void each_pair(float (&scores)[1][N_TILES][4], Visit visit) {
    const int lane_column = own_thread() % 4 * 2;
    UNROLL for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r) visit(n, r, lane_column + 8 * n, scores[0][n][2 * r], scores[0][n][2 * r + 1]);
}

/// Visits fragments in rounds of STEP, for what is long or needs many registers: visit(n, column, x), where n counts from the
/// round's first, and x[2 * r + side] is the score of the query at `column` + side. Those visited move behind the others, as
/// registers can't be counted off; `moved()` moves what else belongs to them.
template <int STEP, int N_TILES, class Visit, class Moved>
DEVICE void each_fragment(float (&scores)[1][N_TILES][4], Visit visit, Moved moved) {
    static_assert(N_TILES % STEP == 0, "all rounds are alike");
    const int lane_column = own_thread() % 4 * 2;
    NO_UNROLL for (int column = lane_column; column < 8 * N_TILES; column += 8 * STEP) {
        UNROLL for (int n = 0; n < STEP; ++n) visit(n, column + 8 * n, scores[0][n]);
        rotate_columns<STEP>(scores[0]);
        moved();
    }
}

/// The word of an operand that fragment n and half r of the keys are packed to.
template <int STEPS> DEVICE unsigned& word_of(unsigned (&operand)[STEPS][4], int n, int r) {
    return operand[n / 2][n % 2 * 2 + r];
}

/// Where this lane's row of four 8 x 8 matrices is: of the first 16 queries, and of the warp's keys as columns.
template <class Tile> DEVICE unsigned transposed_row(unsigned panel) {
    const int lane = own_thread() % 32, warp = own_thread() / 32 % 4;
    return panel + Tile::template in_panel<128>(lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
}

/// Stores four 8 x 8 matrices transposed, a lane's word of each in x; the lane's address is that of a row of one of them.
DEVICE void store_matrices_transposed(unsigned address, const unsigned (&x)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}

// ---- warpgroup.cuh
// What consumers do to tiles before wgmma reads them. Each warpgroup has a named barrier, and all have one more.

DEVICE void warpgroup_wait(int warpgroup) { named_wait(1 + warpgroup, 128); }

/// Zeros in place of a tile's rows from `rows` on: they belong to another sequence, and 0 times what they hold may be
/// NaN. THREADS share the work, all that multiply or those of one warpgroup, and wait for each other at `barrier`.
template <class Tile, int THREADS> DEVICE void clear_rows(unsigned tile, int rows, int barrier = 1 + THREADS / 128) {
    NO_UNROLL for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        NO_UNROLL for (int at = (rows * 8 + thread_index() % THREADS) * 16; at < Tile::ROWS * 128; at += THREADS * 16)
            store_words(tile + panel * Tile::ROWS * 128 + at, {0, 0, 0, 0});
    fence_async();
    named_wait(barrier, THREADS);
}

/// The scale that products with the keys of a block are to have: its reciprocal must be a number of the dtype, with all its bits.
/// Of one that is too small, 0 included, or too large, the keys take the rest, a power of 2 if it is too large.
template <class Dtype> DEVICE float effective_scale(float scale) {
    if (fabsf(scale) > Dtype::MOST_SCALE) return __uint_as_float((__float_as_uint(scale) & 0x807fffff) | 0x3f800000);
    return fabsf(scale) >= Dtype::LEAST_SCALE ? scale : copysignf(Dtype::LEAST_SCALE, scale);
}

/// Gives the keys their part, and returns the effective scale. All THREADS that multiply share the work.
template <class Dtype, class KTile, int THREADS> DEVICE float take_scale(unsigned keys, float scale) {
    const float effective = effective_scale<Dtype>(scale);
    if (effective == scale) return scale;
    NO_UNROLL for (int byte = threadIdx.x * 4; byte < KTile::BYTES; byte += THREADS * 4) {
        const unsigned word = load_word(keys + byte);
        store_word(keys + byte, Dtype::pack(Dtype::low(word) * (scale / effective), Dtype::high(word) * (scale / effective)));
    }
    fence_async();
    named_wait(1 + THREADS / 128, THREADS);
    return effective;
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

/// Leaves undefined what a product is about to overwrite: else the compiler would keep it until then.
template <int N_TILES> DEVICE void forget(float (&x)[1][N_TILES][4]) {
    UNROLL for (int i = 0; i < 4 * N_TILES; ++i) asm volatile("" : "=f"(x[0][i / 4][i % 4]));
}

/// `pin` of 16-bit operands in registers, which a product may still be reading.
template <int STEPS> DEVICE void pin_operand(unsigned (&x)[STEPS][4]) {
    UNROLL for (int i = 0; i < 4 * STEPS; ++i) asm volatile("" : "+r"(x[i / 4][i % 4])::"memory");
}

/// Waits until at most PENDING groups are under way; `result` is what the others computed.
template <int PENDING, int N_TILES> DEVICE void wgmma_wait(float (&result)[1][N_TILES][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    pin(result);
}

/// A step's registers of an A operand, as an operand of one step.
template <int STEPS> DEVICE unsigned (&step_of(unsigned (&x)[STEPS][4], int step))[1][4] {
    return reinterpret_cast<unsigned(&)[1][4]>(x[step]);
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

using Element = Dtype::Element;
using QOrder = TileOrder<BLOCK_Q, 1, 1>;
using KvOrder = TileOrder<BLOCK_KV, 1, 1>;
using OwnOrder = TileOrder<OWN_KEYS, 1, 1>;

using Scores = float[1][Q_TILES][4];       // transposed: 16 keys a warp, PART_Q queries
using Operand = unsigned[PART_Q / 16][4];   // the same with 16 bits, as A operands of products over the queries

using KeyGradient = float[1][D_TILES][4];
using ValueGradient = float[1][VALUE_D_TILES][4];

using KTile = SharedTile<BLOCK_KV, (HEAD_DIM + 63) / 64 * 128>;
using VTile = SharedTile<BLOCK_KV, (VALUE_HEAD_DIM + 63) / 64 * 128>;
using QTile = SharedTile<BLOCK_Q, KTile::ROW_BYTES>;
using OutTile = SharedTile<BLOCK_Q, VTile::ROW_BYTES>;
using DScoresTile = SharedTile<BLOCK_Q, BLOCK_KV * 2>;

// ---------------------------------------------------------------- causal

struct Params {
    const bf16 *q, *k, *v, *dout;
    bf16 *dk, *dv;
    float *dq_sum;
    const float *statistics;
    int *next_block, *dq_semaphore, *finished;
    const int *cu_seqlens_q, *cu_seqlens_kv, *kv_lens, *block_table, *q_offsets;
    long long q_stride_batch, q_stride_head, q_stride_row;
    long long k_stride_batch, k_stride_head, k_stride_row;
    long long v_stride_batch, v_stride_head, v_stride_row;
    long long dout_stride_batch, dout_stride_head, dout_stride_row;
    long long dk_stride_batch, dk_stride_head, dk_stride_row;
    long long dv_stride_batch, dv_stride_head, dv_stride_row;
    int q_offset, q_offset_form, batch, num_heads, num_kv_heads, q_len, kv_len, row_blocks, kv_blocks, blocks;
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
#line 1366 "causal_backward_bf16_d128_sm_90a.cu"
    return row;
}

// keep if causal()
DEVICE bool keep(const Params& params, const Context& ctx, const Row& row, int kv_idx) {
#line 8 "specs/causal.attn"
    return row.q_pos >= kv_idx;
#line 1374 "causal_backward_bf16_d128_sm_90a.cu"
}

// The score after all score lines, and its derivatives: by the score before them, by learnable inputs.
struct ScoreGradient {
    float score, slope;
};

// The rows that matter to the keys kv_first..kv_last: all kept pairs lie in [q_begin, q_end), and all pairs in
// [full_begin, full_end) are kept.
struct QBounds {
    int q_begin, full_begin, full_end, q_end;
};

DEVICE QBounds q_bounds(const Params& params, const Context& ctx, int kv_first, int kv_last) {
    const int q_begin = min(max(kv_first - ctx.q_offset, 0), ctx.q_len);
    const int full_begin = min(max(kv_last - ctx.q_offset, 0), ctx.q_len);
    const int full_end = ctx.q_len;
    const int q_end = ctx.q_len;
    return {q_begin, full_begin, full_end, q_end};
}

constexpr bool ASKS_ALWAYS = false;  // about pairs of tiles of which all is kept, too
constexpr bool MASKS_AHEAD = true;  // what is kept is found while scores are made
[[maybe_unused]] constexpr bool LEARNS = false;  // inputs that score lines read get a gradient
[[maybe_unused]] constexpr bool DRAINS = false;  // all products of a tile end before the next begins
[[maybe_unused]] constexpr bool SPILLS_DSCORE_FACTORS = false;  // see dscore_factors_in_smem.cuh
using LearnedSums = NothingLearned;

// ---------------------------------------------------------------- what the warpgroups share

/// Where things are in shared memory, and the barriers that guard them.
struct Shared : Blocks<KEY_STAGES, STAGES, KEY_SHARES> {
    static constexpr int STATISTICS_BYTES = BLOCK_Q * Statistics<Dtype>::ROW_BYTES;
    static constexpr int QUERY_BYTES = QTile::BYTES + STATISTICS_BYTES;
    // Tiles come last: compute-sanitizer takes an operand for 2048 bytes in a row, which those of `Statistics` aren't.
    static constexpr int WEIGHTS = 0, WEIGHT_BYTES = 2 * CONSUMERS_OF_WEIGHTS * Statistics<Dtype>::WEIGHT_BYTES;
    static constexpr bool BARRIERS_FIRST = VALUE_STAGES > 1;  // there is no room for them behind
    static constexpr int STATISTICS = BARRIERS_FIRST ? (WEIGHT_BYTES + BYTES + 1023) / 1024 * 1024 : WEIGHT_BYTES;
    static constexpr int KEYS = STATISTICS + STAGES * STATISTICS_BYTES, VALUES = KEYS + KEY_STAGES * KTile::BYTES;
    static constexpr int QUERIES = VALUES + VALUE_STAGES * VTile::BYTES, DOUTS = QUERIES + STAGES * QTile::BYTES;
    static constexpr int DSCORES = DOUTS + STAGES * OutTile::BYTES;
    static constexpr int DSCORE_FACTORS = DSCORES + STAGES * DScoresTile::BYTES;  // see `DScoreFactors`
    static constexpr int DSCORE_FACTOR_BYTES = 0;  // one half of those of 64 keys
    static constexpr int OTHER_DSCORES = DSCORE_FACTORS + DSCORE_FACTOR_BYTES;  // of the other block of a pair,
    static constexpr int OTHER_KEYS = OTHER_DSCORES + IN_CLUSTER * STAGES * DScoresTile::BYTES;  // the columns that this one makes of dQ
    static constexpr int OTHER_KEY_BYTES = IN_CLUSTER * KTile::BYTES / 2, TILES_END = OTHER_KEYS + OTHER_KEY_BYTES;
    static constexpr int PIPELINE = BARRIERS_FIRST ? WEIGHT_BYTES : TILES_END;
    static_assert(KEYS % 1024 == 0, "a tile's swizzle counts from multiples of 1024");

    unsigned address;

    DEVICE explicit Shared(unsigned address) : Blocks{address + PIPELINE}, address(address) {}
    DEVICE unsigned keys(int stage) const { return address + KEYS + stage * KTile::BYTES; }
    DEVICE unsigned values(int stage) const { return address + VALUES + stage * VTile::BYTES; }
    DEVICE unsigned queries(int stage) const { return address + QUERIES + stage * QTile::BYTES; }
    DEVICE unsigned douts(int stage) const { return address + DOUTS + stage * OutTile::BYTES; }
    DEVICE unsigned dscores(int stage) const { return address + DSCORES + stage * DScoresTile::BYTES; }
    /// Of a consumer, or of both if they share their keys.
    DEVICE unsigned other_dscores(int stage) const { return address + OTHER_DSCORES + stage * DScoresTile::BYTES; }
    DEVICE unsigned other_keys() const { return address + OTHER_KEYS; }
    DEVICE unsigned statistics(int stage) const { return address + STATISTICS + stage * STATISTICS_BYTES; }
    /// Of lse (0) and of delta (1).
    DEVICE unsigned weights(int consumer, int which) const {
        return address + WEIGHTS + (CONSUMERS_OF_WEIGHTS > 1 ? 2 * consumer + which : which) * Statistics<Dtype>::WEIGHT_BYTES;
    }
};

DEVICE Context context_of(const Params& params, const KeyWork& work, int head) {
    return make_context(params, work, head, work.kv_head);
}

// ---------------------------------------------------------------- the producer

DEVICE int first_own_key(const KeyWork& work, int share) {
    return KvOrder::position(work.kv_block * BLOCK_KV + share * OWN_KEYS);
}

/// The number of the block's head among those of k, of all sequences of a batch that isn't packed.
DEVICE int key_head(const Params& params, const KeyWork& work) {
    return work.batch_index * params.num_kv_heads + work.kv_head;
}

/// A warp for each consumer, which finds the queries that its keys look at, when it is asked. Who walks tiles hasn't the registers to
/// search for documents.
struct RangeFinder {
    const Params& params;
    const Shared& shared;
    int share;

    DEVICE QueryRange range(const KeyWork& work, int head) const {
        QueryRange range = {0, 0, 0, QOrder::end(work.q_len)};
        const int kv_first = first_own_key(work, share);
        // A pair goes through the tiles of both blocks, and needs dS of all their keys, those that don't exist included.
        if (kv_first >= work.kv_len && Cluster::blocks() == 1) return {0, 0, 0, 0};
        const Context context = context_of(params, work, head);
        const QBounds bounds = q_bounds(params, context, kv_first, OwnOrder::last(kv_first, work.kv_len));
        range = {QOrder::begin(bounds.q_begin), bounds.full_begin, bounds.full_end, QOrder::end(bounds.q_end)};
        if (Cluster::blocks() > 1) {
            const int first = KvOrder::position((work.kv_block & ~1) * BLOCK_KV);
            const QBounds of_pair = q_bounds(params, context, first, min(first + 2 * BLOCK_KV, work.kv_len) - 1);
            range.begin = QOrder::begin(of_pair.q_begin), range.end = QOrder::end(of_pair.q_end);
        }
        return range;
    }

    DEVICE void run() const {
        while (true) {
            Shared::wait_for_ranges();
            int stage, head;
            shared.asked(stage, head);
            if (stage == Shared::NO_STAGE) return;
            const QueryRange found = range(shared.work(stage), head);
            if (thread_index() % 32 == 0) shared.write(stage, share, found);
            shared.answer(stage);
        }
    }
};

/// The keys of the consumer that a lane of the producer classifies tiles for: even lanes for the first, odd ones for the second.
struct OwnKeys {
    const Params& params;
    const Shared& shared;
    int stage;
    unsigned parity;  // of its barriers

    DEVICE int first_head() const { return shared.work(stage).kv_head * shared.group(params, stage); }
    DEVICE int last_head() const { return first_head() + shared.group(params, stage) - 1; }

    static DEVICE int own_share() { return thread_index() % KEY_SHARES; }

    /// Waits for what those who find ranges say of it.
    DEVICE void begin_head(int head) const {
        shared.wait_for_answers(params, stage, parity, head, head - first_head());
    }

    DEVICE QueryRange range() const { return shared.range(stage, own_share()); }

    /// Of the tile from a slot on. One that reaches beyond the last query or the last key is never FULL.
    DEVICE TileKind kind([[maybe_unused]] int head, int slot) const {
        const KeyWork work = shared.work(stage);
        const QueryRange range = this->range();
        const int end = slot + BLOCK_Q, q_first = QOrder::first(slot), kv_first = first_own_key(work, own_share());
        const bool ragged = !QOrder::whole(q_first, work.q_len) | !OwnOrder::whole(kv_first, work.kv_len);
        if (slot >= range.end | end <= range.begin) return EMPTY;
        if (!ragged & slot >= range.full_begin & end <= range.full_end) return FULL;
        TileKind kind = PARTIAL;
        return kind == FULL & ragged ? PARTIAL : kind;
    }
};

/// Loads tiles of queries, with their info.
struct TileLoader {
    const Params& params;
    const TensorMap &q_map, &dout_map;
    const Shared& shared;
    Ring<STAGES> queries{1};

    DEVICE TileLoader(const Params& params, const TensorMap& q_map, const TensorMap& dout_map, const Shared& shared)
        : params(params), q_map(q_map), dout_map(dout_map), shared(shared) {}

    /// The lane that writes and loads.
    static DEVICE bool elected() { return thread_index() % 32 == 0; }

    /// The rows of the tensors that a block of keys, and a tile of queries, begin with.
    static DEVICE int first_key(const KeyWork& work) {
        return work.kv_start + KvOrder::first(work.kv_block * BLOCK_KV);
    }
    static DEVICE int first_query(const KeyWork& work, const QueryTile& tile) {
        return work.q_start + QOrder::first(tile.slot());
    }

    /// The first row block of a tile.
    DEVICE int row_block(const KeyWork& work, const QueryTile& tile) const {
        return (int)first_row_block(params, work, tile.head) + tile.slot() / ROW_BLOCK;
    }

    /// Queries of a tile, to a stage that is free. By the elected lane. `place`: what the dQ consumer is told, see `FirstStores`.
    DEVICE void load_queries(const KeyWork& work, const QueryTile& tile, int row_block, int place) const {
        const unsigned full = shared.queries_full(queries.stage);
        const bool others = params.cu_seqlens_q != nullptr && tile.slot() + BLOCK_Q > work.q_len;
        shared.write(queries.stage, queries.parity ^ 1, {place, {tile.head, tile.word | (others ? QueryTile::SHARED : 0), tile.ends_head}});
        barrier_arrive_expecting(full, Shared::QUERY_BYTES);
        Cluster::load_panels<QTile, QOrder>(shared.queries(queries.stage), q_map, full, first_query(work, tile),
                                          coordinate(tile.head, params.q_stride_head),
                                          coordinate(work.batch_index, params.q_stride_batch), 0);
        bulk_load(shared.statistics(queries.stage), params.statistics + (long long)row_block * ROW_BLOCK * Statistics<Dtype>::FLOATS,
                  Shared::STATISTICS_BYTES, full);
    }

    DEVICE void load_douts(const KeyWork& work, const QueryTile& tile) const {
        const unsigned full = shared.douts_full(queries.stage);
        barrier_arrive_expecting(full, OutTile::BYTES);
        Cluster::load_panels<OutTile, QOrder>(shared.douts(queries.stage), dout_map, full, first_query(work, tile),
                                            coordinate(tile.head, params.dout_stride_head),
                                            coordinate(work.batch_index, params.dout_stride_batch), 1);
    }
};

/// What block `index` of keys is. False if it has no keys: one of those that a packed batch has to spare, or of lengths that make no
/// sense. Nobody adds for it, which is counted here.
DEVICE bool find_block(const Params& params, int index, KeyWork& work) {
    work = find_key_work<BLOCK_KV, Cluster>(params, index);
    if (KvOrder::first(work.kv_block * BLOCK_KV) < work.kv_len) return true;
    if (params.finished != nullptr) count_finished(params.finished + key_head(params, work), Shared::DQ_CONSUMER_WARPS);
    return false;
}

/// One warp, which loads what the others work on: for each block of keys the tiles of queries that keep some of them, head
/// after head of the group. It alone walks tiles and asks for blocks; the others read its tile info.
struct Producer : TileLoader {
    const TensorMap &k_map, &v_map;
    Ring<KEY_STAGES> keys{1};
    unsigned values_parity = 1;

    DEVICE Producer(const Params& params, const TensorMap& q_map, const TensorMap& k_map, const TensorMap& v_map,
                                        const TensorMap& dout_map, const Shared& shared)
        : TileLoader(params, q_map, dout_map, shared), k_map(k_map), v_map(v_map) {}

    DEVICE void load_keys(int order) {
        if (!elected()) return;
        shared.write_order(keys.stage, order);
        const unsigned full = shared.keys_full(keys.stage);
        if (!(order & DIFFERENTIATE)) return barrier_arrive(full);
        const KeyWork work = shared.work(keys.stage);
        barrier_arrive_expecting(full, KTile::BYTES + (Cluster::blocks() > 1 ? Shared::OTHER_KEY_BYTES : 0));
        const int head = coordinate(work.kv_head, params.k_stride_head), batch = coordinate(work.batch_index, params.k_stride_batch);
        tma_load_panels<KTile, KvOrder>(shared.keys(keys.stage), k_map, full, first_key(work), head, batch);
        if (Cluster::blocks() > 1)
            tma_load(shared.other_keys(), k_map, full, Cluster::rank() * 64, (work.kv_block ^ 1) * BLOCK_KV, head, batch);
    }

    DEVICE void load_values() {
        barrier_wait(shared.values_empty(), values_parity);
        values_parity ^= 1;
        if (!elected()) return;
        const KeyWork work = shared.work(keys.stage);
        tma_load_ordered<VTile, KvOrder>(shared.values(0), v_map, shared.values_full(), first_key(work),
                                         coordinate(work.kv_head, params.v_stride_head),
                                         coordinate(work.batch_index, params.v_stride_batch));
    }

    DEVICE void load_queries(const QueryTile& tile) {
        barrier_wait(shared.queries_empty(queries.stage), queries.parity);
        if (!elected()) return;
        const KeyWork work = shared.work(keys.stage);
        const int row_block = this->row_block(work, tile);
        TileLoader::load_queries(work, tile, row_block, FirstStores::place(params, row_block));
    }

    DEVICE void load_douts(const QueryTile& tile) {
        barrier_wait(shared.douts_empty(queries.stage), queries.parity);
        if (elected()) TileLoader::load_douts(shared.work(keys.stage), tile);
    }

    /// As `next_key_tile`. In a cluster the first block asks for both, and tells the other: as often as there have been stages of keys.
    DEVICE int next_block(int index) const {
        if (Cluster::blocks() == 1 || params.next_block == nullptr) return next_key_tile(params, index);
        if (Cluster::rank() == 0) {
            if (elected()) index = 2 * atomicAdd(params.next_block, 1);
            index = __shfl_sync(~0u, index, 0);
            if (index >= params.blocks) index = -1;
            barrier_wait(shared.scheduled_empty(), keys.parity);
            if (elected()) Cluster::tell(shared.scheduled_at(), index, shared.scheduled_full());
            return index;
        }
        if (elected()) barrier_arrive_expecting(shared.scheduled_full(), 4);
        barrier_wait(shared.scheduled_full(), keys.parity ^ 1);
        index = shared.scheduled();
        if (elected()) Cluster::arrive_at_other(shared.scheduled_empty());
        return index < 0 ? index : index + 1;
    }

    /// All that a block of keys needs. False if it has none.
    DEVICE bool begin_block(int index) {
        KeyWork work;
        if (!find_block(params, index, work)) return false;
        barrier_wait(shared.keys_empty(keys.stage), keys.parity);
        if (elected()) shared.write(keys.stage, work);
        __syncwarp();
        return true;
    }

    DEVICE void load_block() {
        const OwnKeys own = {params, shared, keys.stage, keys.parity};
        QueryTiles<BLOCK_Q, OwnKeys> tiles(own, own.first_head());
        const int parity = keys.parity == 0 ? KEYS_PARITY : 0;
        load_keys(parity | (tiles.more() ? STORE | DIFFERENTIATE | (values_parity ^ 1) : STORE));
        bool values = false;
        while (tiles.more()) {
            const QueryTile tile = tiles.take();
            load_queries(tile);
            if (!values) load_values();
            values = true;
            load_douts(tile);
            queries.advance();
        }
        keys.advance();
    }

    DEVICE void run() {
        for (int index = next_block(-1); index >= 0; index = next_block(index))
            if (begin_block(index)) load_block();
        barrier_wait(shared.keys_empty(keys.stage), keys.parity);
        load_keys(END);
        if (elected()) shared.ask(Shared::NO_STAGE, 0);
        Shared::wait_for_ranges();
    }
};

DEVICE void run_producer(const Params& params, const TensorMap& q_map, const TensorMap& k_map, const TensorMap& v_map,
                         const TensorMap& dout_map, const Shared& shared, int warp) {
    if (warp == 0) {
        Producer producer(params, q_map, k_map, v_map, dout_map, shared);
        producer.run();
    } else if (warp <= KEY_SHARES) {
        const RangeFinder finder = {params, shared, warp - 1};
        finder.run();
    }
}
// ---------------------------------------------------------------- consumers of keys

// ---------------------------------------------------------------- pairs of keys and queries

// ---- probs_kept.cuh
/// P with 16 bits, as dV takes it. dS is a multiple of dP - delta by P itself, which registers hold until it is made: so P is rounded
/// late, but for the first 16 queries.
struct Probs {
    static constexpr int EARLY_STEPS = DRAINS ? 2 : 1;  // of 16 queries each, that are rounded when all exponents have become P

    const Scores& scores;
    Operand& words;

    DEVICE void begin(unsigned) {}
    DEVICE void put(int, int, float, float) {}

    /// Those of the steps FIRST to LAST - 1.
    template <int FIRST, int LAST> DEVICE void round() {
        UNROLL for (int i = 4 * FIRST; i < 4 * LAST; ++i) {
            const float(&four)[4] = scores[0][i / 2];
            word_of(words, i / 2, i % 2) = Dtype::pack(four[i % 2 * 2], four[i % 2 * 2 + 1]);
        }
    }
};

DEVICE bool keeps_pair([[maybe_unused]] const Params& params, [[maybe_unused]] const Context& context,
                       [[maybe_unused]] const Row& row, [[maybe_unused]] int kv_idx) {
    bool kept = true;
    kept = keep(params, context, row, kv_idx);
    return kept;
}

/// What the mask keeps of a tile of S^T, 16 keys and PART_Q queries: of fragment n in the bits from 4 * n on, of its half r and
/// `side` in that at 2 * r + side. It takes no scores, so what it reads can arrive while they are made.
struct KeptPairs {
    unsigned bits = ~0u;

    DEVICE bool has(int n, int r, int side) const { return bits >> (4 * n + 2 * r + side) & 1; }

    /// Moves the next fragment's bits to where fragment 0 has them.
    DEVICE void advance() { bits = opaque(bits >> 4); }

    /// Where rows are read from inputs, each lane makes one, and hands out what it has read.
    DEVICE void find(const Params& params, const Context& context, int q_first, int kv_first) {
        const int own = kv_first + own_thread() % 32 / 4, kv_last = context.kv_len - 1;
        const int kv_idx[2] = {min(own, kv_last), min(own + 8, kv_last)};
        bits = 0;
#pragma unroll 1  // so that lanes wait for each other once, not in each round
        for (int part = 0; part < PART_Q / 32; ++part, q_first += 32) {
            const int queries = context.q_len - q_first;
            [[maybe_unused]] const Row made = make_row(params, context, q_first + min((int)own_thread() % 32, queries - 1));
            NO_UNROLL for (int column = own_thread() % 4 * 2; column < 32; column += 8) {
                unsigned four = 0;
                UNROLL for (int side = 0; side < 2; ++side) {
                    const int query = column + side;
                    const Row row = make_row(params, context, q_first + query);
                    const bool inside = query < queries;
                    four |= (inside & keeps_pair(params, context, row, kv_idx[0])) << side;
                    four |= (inside & keeps_pair(params, context, row, kv_idx[1])) << (2 + side);
                }
                bits = bits >> 4 | four << 28;
            }
        }
        if (opaque(own) + 8 > kv_last) bits &= 0x33333333;  // added again: kept through the loop, the sum is a register too many
        if (own > kv_last) bits = 0;
        bits >>= 32 - 4 * Q_TILES;
    }
};
/// What makes up for the pairs that dropout drops.
DEVICE float dropout_scale([[maybe_unused]] const Params& params) {
    float scale = 1;
    return scale;
}

/// What a consumer's warp makes of a tile of S^T, 16 keys from kv_first on and the queries of a tile: exponents, P, and with dP
/// the gradient dS.
struct Pairs {
    const Params& params;
    Recompute recompute;
    Scores& scores;    // S, exponents, then what dS is a multiple of dP - delta by: P, or another number
    Scores& dprobs;    // before there is dP, the derivative of the score lines
    Operand& dscores;
    Probs probs;
    Factors<Q_TILES> factors{dprobs};
    Replay<1, 16> replay;

    /// Before the pairs of a tile and its head. Dropout needs to know which they are.
    DEVICE void begin_tile([[maybe_unused]] const Context& context, [[maybe_unused]] int q_first,
                           [[maybe_unused]] int kv_first) {}

    /// What the score lines make of a product, and its derivative.
    DEVICE ScoreGradient modified([[maybe_unused]] const Context& context, [[maybe_unused]] const Row& row,
                                  [[maybe_unused]] int kv_idx, float score) const {
        ScoreGradient found = {score, 1};
        return found;
    }

    /// Products to what P is computed of, where all is kept and no score lines are.
    DEVICE void scale() {
        each_pair(scores, [&](int, int, int, float& x, float& y) {
            x = recompute.exponent(x);
            y = recompute.exponent(y);
        });
    }

    /// Products to what P is computed of, in a tile of which all is kept.
    DEVICE void modify(const Context& context, int q_first, int kv_first) {
        kv_first = opaque(kv_first + KvOrder::offset(own_thread() % 32 / 4));
        visit<WHOLE_STEP>([&](int column, int side, int r, float& x) {
            const int q_idx = q_first + QOrder::offset(column) + QOrder::offset(side), kv_idx = kv_first + KvOrder::offset(8 * r);
            const ScoreGradient found = modified(context, make_row(params, context, q_idx), kv_idx, x);
            x = recompute.exponent(found.score);
            return found.slope;
        }, [] {});
    }

    /// Products to what P is computed of, in any tile. With MASKS_AHEAD `kept_pairs` is what is kept of it.
    DEVICE void modify_and_mask(const Context& context, int q_first, int kv_first, KeptPairs kept_pairs) {
        const int q_last = context.q_len - 1, kv_last = context.kv_len - 1;
        kv_first = opaque(kv_first + KvOrder::offset(own_thread() % 32 / 4));
        visit<SCORE_STEP>([&](int column, int side, int r, float& x) {
            const int own = kv_first + KvOrder::offset(8 * r), kv_idx = min(own, kv_last);
            const int q_idx = q_first + QOrder::offset(column) + QOrder::offset(side);
            const Row row = make_row(params, context, min(q_idx, q_last));
            const ScoreGradient found = modified(context, row, kv_idx, x);
            const bool kept = MASKS_AHEAD ? kept_pairs.has(0, r, side)
                                          : own <= kv_last & q_idx <= q_last & keeps_pair(params, context, row, kv_idx);
            x = kept ? recompute.exponent(found.score) : NEGATIVE_INFINITY;
            return found.slope;
        }, [&] {
            if (MASKS_AHEAD) kept_pairs.advance();
        });
    }

    /// Products to what P is computed of, as far as they are kept.
    DEVICE void mask(const KeptPairs& kept) {
        each_pair(scores, [&](int n, int r, int, float& x, float& y) {
            x = kept.has(n, r, 0) ? recompute.exponent(x) : NEGATIVE_INFINITY;
            y = kept.has(n, r, 1) ? recompute.exponent(y) : NEGATIVE_INFINITY;
        });
    }

    /// Each score, by change(column, side, r, x), which returns its factor. Of a query all keys at once: what depends on it
    /// alone is computed once, and held for as long. `next()` comes after each fragment.
    template <int STEP, class Change, class Next> DEVICE void visit(Change change, Next next) {
        each_fragment<STEP>(scores, [&](int n, int column, float (&x)[4]) {
            float dscore_factors[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) dscore_factors[i % 2 * 2 + i / 2] = change(column, i / 2, i % 2, x[i % 2 * 2 + i / 2]);
            next();
        }, [&] { factors.template rotate<STEP>(); });
    }

    /// P, without what dropout drops, and in place of the exponents what dS is a multiple of dP - delta by. Where delta
    /// isn't subtracted from it, dP of what is dropped counts as 0 there.
    DEVICE void exponentiate() {
        each_pair(scores, [&](int n, int r, int, float& x, float& y) {
            const float prob_x = exp2_flushed(x), prob_y = exp2_flushed(y);
            probs.put(n, r, replay.keeps(0, n, r, 0) ? prob_x : 0, replay.keeps(0, n, r, 1) ? prob_y : 0);
            x = Recompute::dscore_factor(x, prob_x) * dropout_scale(params);
            y = Recompute::dscore_factor(y, prob_y) * dropout_scale(params);
            if (!Recompute::HAS_DELTA) {
                x = replay.keeps(0, n, r, 0) ? x : 0;
                y = replay.keeps(0, n, r, 1) ? y : 0;
            }
        });
    }
    /// dS, in place of dP. Where its factors were spilled, they have been multiplied by.
    DEVICE void differentiate() {
        UNROLL for (int i = 0; i < 4 * Q_TILES; ++i) dprobs[0][i / 4][i % 4] *= scores[0][i / 4][i % 4];
    }

    /// dS with 16 bits.
    DEVICE void round_dscores() {
        each_pair(dprobs, [&](int n, int r, int, float x, float y) { word_of(dscores, n, r) = Dtype::pack(x, y); });
    }

    // ---------------------------------------------------------------- learnable inputs

    /// `differentiate` where inputs get a gradient: what dS adds to them is summed up.
    template <class Learned> DEVICE void learn(Learned& learned, const Context& context, int q_first, int kv_first) {
        const int q_last = context.q_len - 1, kv_last = context.kv_len - 1;
        const int own = opaque(kv_first + KvOrder::offset(own_thread() % 32 / 4));
        learned.begin_tile(params, context, q_first, min(q_first + QOrder::offset(PART_Q - 1), q_last), kv_first,
                           min(kv_first + KvOrder::offset(15), kv_last));
        const int lane_column = own_thread() % 4 * 2;
        UNROLL for (int n = 0; n < Q_TILES; ++n) {
            const int column = lane_column + 8 * n;
            UNROLL for (int side = 0; side < 2; ++side) {
                const Row row = make_row(params, context, min(q_first + QOrder::offset(column) + QOrder::offset(side), q_last));
                UNROLL for (int r = 0; r < 2; ++r) {
                    const int kv_idx = min(own + KvOrder::offset(8 * r), kv_last);
                    float& x = dprobs[0][n][2 * r + side];
                    if (!SPILLS_DSCORE_FACTORS) x *= scores[0][n][2 * r + side];
                    learned.pair(r, modified(context, row, kv_idx, 0), x, params, context, row, kv_idx);
                }
            }
        }
        UNROLL for (int side = 0; side < 2; ++side) {
            const int q_idx = q_first + QOrder::offset(own_query(side));
            if (own_query(side) < PART_Q & q_idx <= q_last)
                learned.row(side, params, context, make_row(params, context, q_idx), min(kv_first, kv_last));
        }
        learned.tile(params, context, make_row(params, context, q_first), min(kv_first, kv_last));
    }

    /// The rest of it, for pairs that aren't known to have one entry of an input: from dS as the warp has stored it, with the
    /// tile's first query at `target`. Each lane goes along a diagonal, since many tables are read by the distance of a pair.
    template <class Learned>
    DEVICE void learn_apart(Learned& learned, const Context& context, int q_first, int kv_first, unsigned target) {
        if (learned.in_one_place()) return;
        __syncwarp();
        const int lane = own_thread() % 32, first_column = own_thread() / 32 % 4 * 16;
        NO_UNROLL for (int step = 0; step < PART_Q / 2; ++step) {
            const int key = step % 16, query = (lane + step / 16 * 32 + key) % PART_Q, column = first_column + key;
            const int q_idx = q_first + QOrder::offset(query), kv_idx = kv_first + KvOrder::offset(key);
            if (q_idx >= context.q_len | kv_idx >= context.kv_len) continue;
            const unsigned two = load_word(target + DScoresTile::in_panel<128>(query, column / 8) + column % 8 / 2 * 4);
            const Row row = make_row(params, context, q_idx);
            learned.apart(modified(context, row, kv_idx, 0), column % 2 == 0 ? Dtype::low(two) : Dtype::high(two), params,
                          context, row, kv_idx);
        }
    }
};
// ---------------------------------------------------------------- products of the consumers of keys

/// sum = A B, added to what it holds if `accumulate`: 64 x 64, over 8 times 16.
#define STEP(b_step, a_step, adds) \
    "add.s64 b, %33, %" #b_step "; add.s64 a, %34, %" #a_step ";\n" \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
    " %23, %24, %25, %26, %27, %28, %29, %30, %31" \
    "}, a, b, " #adds ", 1, 1, 0, 0;\n"
template <class ASteps, class BSteps>
DEVICE void multiply_keys_queries_async(float (&sum)[8][4], unsigned long long a, unsigned long long b,
                                        int accumulate) {
    asm volatile(
        "{ .reg .pred first, more; setp.ne.b32 first, %32, 0; setp.eq.b32 more, 0, 0;\n"
        ".reg .b64 a, b;\n"
        STEP(35, 36, first) STEP(37, 38, more) STEP(39, 40, more) STEP(41, 42, more) STEP(43, 44, more)
        STEP(45, 46, more) STEP(47, 48, more) STEP(49, 50, more) "}"
        : SUM_TILES(0), SUM_TILES(4)
        : "r"(accumulate), "l"(b), "l"(a), A_IN_SMEM(0), A_IN_SMEM(1), A_IN_SMEM(2), A_IN_SMEM(3), A_IN_SMEM(4),
          A_IN_SMEM(5), A_IN_SMEM(6), A_IN_SMEM(7));
}
#undef STEP

/// sum = A B, added to what it holds if `accumulate`: 64 x 64, over 8 times 16.
#define STEP(b_step, a_step, adds) \
    "add.s64 b, %33, %" #b_step "; add.s64 a, %34, %" #a_step ";\n" \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
    " %23, %24, %25, %26, %27, %28, %29, %30, %31" \
    "}, a, b, " #adds ", 1, 1, 0, 0;\n"
template <class ASteps, class BSteps>
DEVICE void multiply_values_dout_async(float (&sum)[8][4], unsigned long long a, unsigned long long b, int accumulate) {
    asm volatile(
        "{ .reg .pred first, more; setp.ne.b32 first, %32, 0; setp.eq.b32 more, 0, 0;\n"
        ".reg .b64 a, b;\n"
        STEP(35, 36, first) STEP(37, 38, more) STEP(39, 40, more) STEP(41, 42, more) STEP(43, 44, more)
        STEP(45, 46, more) STEP(47, 48, more) STEP(49, 50, more) "}"
        : SUM_TILES(0), SUM_TILES(4)
        : "r"(accumulate), "l"(b), "l"(a), A_IN_SMEM(0), A_IN_SMEM(1), A_IN_SMEM(2), A_IN_SMEM(3), A_IN_SMEM(4),
          A_IN_SMEM(5), A_IN_SMEM(6), A_IN_SMEM(7));
}
#undef STEP

/// sum = A B, added to what it holds if `accumulate`: 64 x 64, over 1 times 16.
#define STEP(b_step, a_step, adds) \
    "add.s64 b, %33, %" #b_step "; add.s64 a, %34, %" #a_step ";\n" \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
    " %23, %24, %25, %26, %27, %28, %29, %30, %31" \
    "}, a, b, " #adds ", 1, 1, 0, 0;\n"
template <class ASteps, class BSteps>
DEVICE void multiply_statistics_async(float (&sum)[8][4], unsigned long long a, unsigned long long b, int accumulate) {
    asm volatile(
        "{ .reg .pred first, more; setp.ne.b32 first, %32, 0; setp.eq.b32 more, 0, 0;\n"
        ".reg .b64 a, b;\n"
        STEP(35, 36, first) "}"
        : SUM_TILES(0), SUM_TILES(4)
        : "r"(accumulate), "l"(b), "l"(a), A_IN_SMEM(0));
}
#undef STEP

/// sum = A B, added to what it holds if `accumulate`: 64 x 128, over 4 times 16.
#define STEP(b_step, a0, a1, a2, a3, adds) \
    "add.s64 b, %65, %" #b_step ";\n" \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
    " %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43," \
    " %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
    "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, b, " #adds ", 1, 1, 1;\n"
template <class BSteps>
DEVICE void add_key_gradient_async(float (&sum)[16][4], const unsigned (&a)[4][4], unsigned long long b,
                                   int accumulate) {
    asm volatile(
        "{ .reg .pred first, more; setp.ne.b32 first, %64, 0; setp.eq.b32 more, 0, 0;\n"
        ".reg .b64 b;\n"
        STEP(66, 67, 68, 69, 70, first) STEP(71, 72, 73, 74, 75, more) STEP(76, 77, 78, 79, 80, more)
        STEP(81, 82, 83, 84, 85, more) "}"
        : SUM_TILES(0), SUM_TILES(4), SUM_TILES(8), SUM_TILES(12)
        : "r"(accumulate), "l"(b), A_IN_REGISTERS(0), A_IN_REGISTERS(1), A_IN_REGISTERS(2), A_IN_REGISTERS(3));
}
#undef STEP

/// sum = A B, added to what it holds if `accumulate`: 64 x 128, over 1 times 16.
#define STEP(b_step, a0, a1, a2, a3, adds) \
    "add.s64 b, %65, %" #b_step ";\n" \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
    " %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43," \
    " %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
    "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, b, " #adds ", 1, 1, 1;\n"
template <class BSteps>
DEVICE void add_value_gradient_async(float (&sum)[16][4], const unsigned (&a)[1][4], unsigned long long b,
                                     int accumulate) {
    asm volatile(
        "{ .reg .pred first, more; setp.ne.b32 first, %64, 0; setp.eq.b32 more, 0, 0;\n"
        ".reg .b64 b;\n"
        STEP(66, 67, 68, 69, 70, first) "}"
        : SUM_TILES(0), SUM_TILES(4), SUM_TILES(8), SUM_TILES(12)
        : "r"(accumulate), "l"(b), A_IN_REGISTERS(0));
}
#undef STEP

/// What a warpgroup that owns STRIPS * 64 keys of a block holds, its gradients apart, and its products.
struct ConsumerProducts {
    const Params& params;
    const Shared& shared;
    RingCounter<STAGES> queries;
    int number;        // of the consumer
    unsigned keys_at;  // where the block's keys are
    bool pending = false;  // products of the tile before may still be under way
    const ConsumerRelease consumer_release{shared.address};
    const unsigned kept_row;  // of the lane's, where a tile of dS is stored, see `transposed_row`

    Scores scores;    // S, then P where that is kept until dS
    Scores dprobs;    // dP
    Operand probs;    // P with 16 bits, as dV takes it
    Operand dscores;  // dS with 16 bits

    DEVICE ConsumerProducts(const Params& params, const Shared& shared)
        : params(params), shared(shared), kept_row(transposed_row<DScoresTile>(0)) {}

    /// Made anew where factors of dS are spilled: registers are few there.
    DEVICE unsigned own_row() const { return SPILLS_DSCORE_FACTORS ? transposed_row<DScoresTile>(0) : kept_row; }

    /// Which of the consumers this is. Asked for anew with each tile, while that is on its way.
    DEVICE void find_number() { number = uniform(own_thread() / 128); }

    DEVICE int strip_number(int strip) const { return (KEY_SHARES > 1 ? number : 0) * STRIPS + strip; }

    /// Of the block's keys. Of the block nothing is kept in registers but this: it says where the rest is.
    DEVICE int key_stage() const { return (keys_at - shared.keys(0)) / KTile::BYTES; }
    /// Where the values are: beside the keys, in stages of theirs, or in a stage that they have alone.
    DEVICE unsigned values_at() const {
        if (Shared::VALUE_STAGES == 1) return shared.values(0);
        return keys_at + (Shared::VALUES - Shared::KEYS) + key_stage() * (VTile::BYTES - KTile::BYTES);
    }
    DEVICE KeyWork work() const { return shared.work(key_stage()); }
    DEVICE Ring<KEY_STAGES> keys() const {
        Ring<KEY_STAGES> keys(shared.order(key_stage()) / KEYS_PARITY % 2);
        keys.stage = key_stage();
        return keys;
    }

    /// The first key of the warp in a strip.
    DEVICE int first_key(const KeyWork& work, int strip) const {
        return KvOrder::position(work.kv_block * BLOCK_KV + strip_number(strip) * 64 + own_thread() % 128 / 32 * 16);
    }

    /// Where dS of a part of the tile's rows, and of a strip's keys, is.
    DEVICE unsigned dscores_at(int strip, int part) const {
        return shared.dscores(queries.stage()) + strip_number(strip) * DScoresTile::panel(8) + part * PART_Q * 128;
    }

    /// The first query of a part of a tile.
    static DEVICE int first_query(const QueryTile& tile, int part) {
        return QOrder::position(tile.slot() + part * PART_Q);
    }

    // ---------------------------------------------------------------- products

    /// An address that all parts of a tile share. Descriptors made of it ahead of their loop would take registers from it.
    static DEVICE unsigned of_part(unsigned address) { return PARTS > 1 ? opaque((int)address) : address; }

    /// Adds minus the lse of the tile's queries, or minus their delta, to the accumulators; `begin`: to nothing.
    DEVICE void multiply_statistics(int which, int part, bool begin) {
        const unsigned address = shared.statistics(queries.stage()) + part * PART_Q * Statistics<Dtype>::ROW_BYTES;
        multiply_statistics_async<RowSteps, RowSteps>((which == 0 ? scores : dprobs)[0], weights_descriptor(shared.weights(number, which)),
                                                      statistics_descriptor(address), !begin);
    }

    DEVICE void start_scores(int strip, int part) {
        const unsigned long long k = descriptor(of_part(keys_at + strip_number(strip) * 64 * 128), 16);
        const unsigned long long q = descriptor(shared.queries(queries.stage()) + part * PART_Q * 128, 16);
        forget(scores);
        wgmma_fence();
        multiply_statistics(0, part, true);
        multiply_keys_queries_async<ColumnSteps<BLOCK_KV>, ColumnSteps<BLOCK_Q>>(scores[0], k, q, 1);
        wgmma_commit();
    }

    DEVICE void start_dprobs(int strip, int part) {
        const unsigned long long v = descriptor(of_part(values_at() + strip_number(strip) * 64 * 128), 16);
        const unsigned long long dout = descriptor(shared.douts(queries.stage()) + part * PART_Q * 128, 16);
        forget(dprobs);
        wgmma_fence();
        multiply_statistics(1, part, true);
        multiply_values_dout_async<ColumnSteps<BLOCK_KV>, ColumnSteps<BLOCK_Q>>(dprobs[0], v, dout, 1);
        wgmma_commit();
    }

    /// Adds what the steps FIRST to LAST - 1 of a part, 16 queries each, add to dV. Behind a `wgmma_fence`.
    template <int FIRST, int LAST> DEVICE void start_dv(ValueGradient& dv, int part) {
        if constexpr (FIRST < LAST) {
            const unsigned long long dout = descriptor(shared.douts(queries.stage()) + part * PART_Q * 128, BLOCK_Q * 128);
            add_value_gradient_async<RowSteps>(dv[0], step_of(probs, FIRST), dout + RowSteps::at(FIRST), 1);
            if constexpr (FIRST + 1 < LAST) return start_dv<FIRST + 1, LAST>(dv, part);
            wgmma_commit();
        }
    }

    /// `pin` of those operands.
    template <int FIRST, int LAST> DEVICE void pin_probs() {
        if constexpr (FIRST < LAST) {
            pin_operand(step_of(probs, FIRST));
            pin_probs<FIRST + 1, LAST>();
        }
    }

    DEVICE void start_dk(KeyGradient& dk, int part) {
        const unsigned long long q = descriptor(shared.queries(queries.stage()) + part * PART_Q * 128, BLOCK_Q * 128);
        wgmma_fence();
        add_key_gradient_async<RowSteps>(dk[0], dscores, q, 1);
        wgmma_commit();
    }

    /// The stage of the tile before.
    DEVICE int stage_before() const { return queries.stage() == 0 ? STAGES - 1 : queries.stage() - 1; }
};
/// A warpgroup that owns STRIPS * 64 keys of a block. `Own` is what derives from it: what it makes of a tile of queries, and of
/// which gradients of the keys it holds sums.
struct BlockConsumer : ConsumerProducts {
    using ConsumerProducts::ConsumerProducts;

    // ---------------------------------------------------------------- a tile of queries

    /// The context of the tile's head. Made anew for each tile: kept, it would take registers from the products.
    DEVICE Context context() const {
        return context_of(params, work(), shared.head(queries.stage(), queries.parity()));
    }

    /// What the mask keeps of a strip and part of a tile, where that can be known before scores.
    DEVICE KeptPairs find_kept(const QueryTile& tile, int strip, int part) const {
        KeptPairs kept;
        if (MASKS_AHEAD && !(tile.full() >> number & 1))
            kept.find(params, context(), first_query(tile, part), first_key(work(), strip));
        return kept;
    }

    DEVICE void modify(Pairs& pairs, const QueryTile& tile, int strip, int part, const KeptPairs& kept) {
        const bool full = tile.full() >> number & 1;
        if (full && !ASKS_ALWAYS) return pairs.scale();
        if (MASKS_AHEAD && !ASKS_ALWAYS) return pairs.mask(kept);
        const Context context = this->context();
        const int q_first = first_query(tile, part), kv_first = first_key(work(), strip);
        if (full)
            pairs.modify(context, q_first, kv_first);
        else
            pairs.modify_and_mask(context, q_first, kv_first, kept);
    }

    /// Stores dS for who makes dQ of it.
    DEVICE void store_dscores(int strip, int part) {
        const unsigned row = dscores_at(strip, part) + own_row();
#pragma unroll
        for (int step = 0; step < PART_Q / 16; ++step) store_matrices_transposed(row + step * 16 * 128, dscores[step]);
    }

    template <int N_TILES> static DEVICE void set_zero(float (&sums)[1][N_TILES][4]) {
        UNROLL for (int i = 0; i < 4 * N_TILES; ++i) sums[0][i / 4][i % 4] = 0;
    }

    /// Zeros in place of the rows of another sequence. Both consumers write them, each for itself.
    DEVICE void clear_others(const QueryTile& tile) {
        const int rows = work().q_len - tile.slot();
        barrier_wait(shared.douts_full(queries.stage()), queries.parity());
        clear_rows<QTile, 128>(shared.queries(queries.stage()), rows, 1 + number);
        clear_rows<OutTile, 128>(shared.douts(queries.stage()), rows, 1 + number);
    }

    // ---------------------------------------------------------------- a block of keys

    template <class Own> DEVICE void work_on_tiles(Own& own, Pairs& pairs) {
        while (true) {
            // FlashAttention-2, Algorithm 2, lines 8 and 9: for each tile of Q, dO, lse and delta.
            find_number();
            barrier_wait(shared.queries_full(queries.stage()), queries.parity());
            const QueryTile tile = shared.query_tile_info(queries.stage(), queries.parity()).tile;
            own.work_on_tile(pairs, tile);
            ++queries.turn;
            if (tile.last()) break;
        }
        own.finish_products();
    }

    /// What the products of a block need besides its tiles: see `prepare_keys` and `Statistics`.
    DEVICE Pairs begin_block(int order) {
        const KeyWork work = this->work();
        const Context context = context_of(params, work, 0);
        shared.wait_for_values(order);
        const int rows = work.kv_len - work.kv_block * BLOCK_KV;
        if (rows < BLOCK_KV && rows_follow_keys(params)) {
            clear_rows<KTile, 128 * CONSUMERS>(keys_at, rows);
            clear_rows<VTile, 128 * CONSUMERS>(values_at(), rows);
        }
        const float scale = take_scale<Dtype, KTile, 128 * CONSUMERS>(keys_at, context.scale);
        Statistics<Dtype>::write_weights(shared.weights(number, 0), 1 / scale, 1 / dropout_scale(params));
        fence_async();
        warpgroup_wait(number);
        Pairs pairs = {params, Recompute(uniform_float(scale)), scores, dprobs, dscores, {scores, probs}};
        return pairs;
    }

    /// The first row of dK and of dV of the block's sequence and head.
    DEVICE Element* dk_rows(const KeyWork& work) const {
        return params.dk + work.batch_index * params.dk_stride_batch + work.kv_head * params.dk_stride_head;
    }
    DEVICE Element* dv_rows(const KeyWork& work) const {
        return params.dv + work.batch_index * params.dv_stride_batch + work.kv_head * params.dv_stride_head;
    }

    /// Stores the warp's rows of a gradient, times `factor`.
    template <int COLUMNS, int N_TILES>
    DEVICE void store(const KeyWork& work, Element* target, long long stride, int strip, float factor,
                      const float (&gradient)[1][N_TILES][4]) const {
        const int first = first_key(work, strip), rows = work.kv_len - first;
        const long long row = work.kv_start + (long long)first;
        const float factors[1][2] = {{factor, factor}};
        store_rows<Dtype, KvOrder, COLUMNS>(target + row * stride, stride, rows, 0, gradient, factors, own_thread() % 32);
    }

    /// Gives back where the block was.
    template <class Own> DEVICE Ring<KEY_STAGES> work_on_block(Own& own, int order) {
        find_number();
        // FlashAttention-2, Algorithm 2, line 7: dK = 0, dV = 0.
        own.clear();
        if (order & DIFFERENTIATE) {
            Pairs pairs = begin_block(order);
            work_on_tiles(own, pairs);
            shared.leave_values();
        }
        const KeyWork work = this->work();
        const Ring<KEY_STAGES> keys = this->keys();
        barrier_arrive(shared.keys_empty(keys.stage));  // each lane for itself: all have read what the stage is about
        // FlashAttention-2, Algorithm 2, line 18: write dK and dV.
        own.store_gradients(work);
        return keys;
    }

    template <class Own> DEVICE void run(Own& own) {
        for (Ring<KEY_STAGES> keys(0);; keys.advance()) {
            // FlashAttention-2, Algorithm 2, lines 5 and 6: for each block of keys, K and V.
            barrier_wait(shared.keys_full(keys.stage), keys.parity);
            const int order = shared.order(keys.stage);
            if (order == END) return;
            keys_at = uniform(shared.keys(keys.stage));
            keys = work_on_block(own, order);
        }
    }
};

/// Owns both gradients of its keys: S^T and dP^T of them, and from those dK and dV.
struct Consumer : BlockConsumer {
    using BlockConsumer::BlockConsumer;

    static constexpr int EARLY_STEPS = Probs::EARLY_STEPS;
    static constexpr bool SPILLS_TO_SMEM = false;  // where dS will be stored

    LearnedSums learned[STRIPS];
    KeyGradient dk[STRIPS];
    ValueGradient dv[STRIPS];

    /// Waits for all products; those of the tile before no longer need its queries.
    DEVICE void finish_products() {
        wgmma_wait<0>(scores);
        pin_operand(dscores);
        UNROLL for (int strip = 0; strip < STRIPS; ++strip) pin(dk[strip]), pin(dv[strip]);
        if (!pending) return;
        const int before = stage_before();
        consumer_release.arrive(shared.queries_empty(before));
        consumer_release.arrive(shared.douts_empty(before));
        pending = false;
    }

    /// Of a tile, all of it: who makes dQ may begin.
    DEVICE void hand_over_dscores() {
        fence_async();
        __syncwarp();
        warp_arrive(shared.dscores_full(queries.stage()));
    }

    DEVICE void work_on_strip(Pairs& pairs, const QueryTile& tile, int strip, int part) {
        const bool first = strip == 0 && part == 0;
        // FlashAttention-2, Algorithm 2, line 10: S^T = K Q^T.
        start_scores(strip, part);
        const KeptPairs kept = find_kept(tile, strip, part);
        finish_products();
        modify(pairs, tile, strip, part, kept);
        if (SPILLS_TO_SMEM && first) barrier_wait(shared.dscores_empty(queries.stage()), queries.parity() ^ 1);
        pairs.probs.begin(dscores_at(strip, part) + own_row());
        // FlashAttention-2, Algorithm 2, line 11: P = exp(S - lse).
        pairs.exponentiate();
        if (first) barrier_wait(shared.douts_full(queries.stage()), queries.parity());
        pairs.probs.template round<0, EARLY_STEPS>();
        pin_probs<0, EARLY_STEPS>();
        // FlashAttention-2, Algorithm 2, lines 13 and 12: dP^T = V dO^T; dV += P^T dO, as far as P is ready.
        start_dprobs(strip, part);
        start_dv<0, EARLY_STEPS>(dv[strip], part);
        wgmma_wait<(EARLY_STEPS > 0 && !SPILLS_DSCORE_FACTORS)>(dprobs);
        // FlashAttention-2, Algorithm 2, line 14: dS = P (dP - delta).
        if (LEARNS)
            pairs.learn(learned[strip], context(), first_query(tile, part), first_key(work(), strip));
        else
            pairs.differentiate();
        wgmma_wait<0>(dv[strip]);
        pin_probs<0, EARLY_STEPS>();
        pairs.probs.template round<EARLY_STEPS, STEPS>();
        pairs.round_dscores();
        if (!SPILLS_TO_SMEM && first) barrier_wait(shared.dscores_empty(queries.stage()), queries.parity() ^ 1);
        // For line 15, which another warpgroup computes.
        store_dscores(strip, part);
        if (strip == STRIPS - 1 && part == PARTS - 1) hand_over_dscores();
        if (LEARNS)
            pairs.learn_apart(learned[strip], context(), first_query(tile, part), first_key(work(), strip),
                              dscores_at(strip, part));
        pin_probs<EARLY_STEPS, STEPS>();
        pin_operand(dscores);
        wgmma_fence();
        // FlashAttention-2, Algorithm 2, lines 12 and 16: the rest of dV; dK += dS^T Q.
        start_dv<EARLY_STEPS, STEPS>(dv[strip], part);
        start_dk(dk[strip], part);
        wgmma_wait<(DRAINS ? 0 : 1)>(dv[strip]);  // the next scores take the registers of P
        pin_probs<EARLY_STEPS, STEPS>();
        if (DRAINS) pin_operand(dscores);
    }

    DEVICE void work_on_tile(Pairs& pairs, const QueryTile& tile) {
        if (tile.live() >> number & 1) {
            if (tile.shared()) clear_others(tile);
            NO_UNROLL for (int part = 0; part < PARTS; ++part) {
                work_on_strip(pairs, tile, 0, part);
                if (STRIPS > 1) work_on_strip(pairs, tile, 1, part);
            }
            pending = true;
        } else {
            skip();
        }
        if (LEARNS && shared.ends_head(queries.stage(), queries.parity())) finish_head();
    }

    /// None of the warpgroup's keys matters to the tile.
    DEVICE void skip() {
        finish_products();
        barrier_wait(shared.douts_full(queries.stage()), queries.parity());
        barrier_wait(shared.dscores_empty(queries.stage()), queries.parity() ^ 1);
        warp_arrive(shared.dscores_full(queries.stage()));
        consumer_release.arrive(shared.queries_empty(queries.stage()));
        consumer_release.arrive(shared.douts_empty(queries.stage()));
    }

    /// Adds what the tiles of a head have summed up to memory.
    DEVICE void finish_head() {
        const Context context = this->context();
        UNROLL for (int strip = 0; strip < STRIPS; ++strip) {
            UNROLL for (int key = 0; key < 2; ++key) {
                const int kv_idx = first_key(work(), strip) + KvOrder::offset(8 * key) + KvOrder::offset(own_thread() % 32 / 4);
                learned[strip].head(key, params, context, make_row(params, context, 0), min(kv_idx, context.kv_len - 1));
            }
            learned[strip] = {};
        }
    }

    DEVICE void clear() {
        UNROLL for (int strip = 0; strip < STRIPS; ++strip) set_zero(dk[strip]), set_zero(dv[strip]);
    }

    DEVICE void store_gradients(const KeyWork& work) const {
        const float scale = context_of(params, work, 0).scale;
        const float kept_scale = dropout_scale(params);
        store_strip(work, scale, kept_scale, 0);
        if (STRIPS > 1) store_strip(work, scale, kept_scale, 1);
    }

    DEVICE void store_strip(const KeyWork& work, float dk_factor, float dv_factor, int strip) const {
        Element *dk_rows = this->dk_rows(work), *dv_rows = this->dv_rows(work);
        store<HEAD_DIM>(work, dk_rows, params.dk_stride_row, strip, dk_factor, dk[strip]);
        store<VALUE_HEAD_DIM>(work, dv_rows, params.dv_stride_row, strip, dv_factor, dv[strip]);
    }
};

DEVICE void run_consumer(const Params& params, const Shared& shared, int) {
    Consumer consumer(params, shared);
    consumer.run(consumer);
}
// ---------------------------------------------------------------- dQ

/// sum = A B, added to what it holds if `accumulate`: 64 x 64, over 4 times 16.
#define STEP(b_step, a_step, adds) \
    "add.s64 b, %33, %" #b_step "; add.s64 a, %34, %" #a_step ";\n" \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
    " %23, %24, %25, %26, %27, %28, %29, %30, %31" \
    "}, a, b, " #adds ", 1, 1, 0, 1;\n"
template <class ASteps, class BSteps>
DEVICE void multiply_query_gradient_async(float (&sum)[8][4], unsigned long long a, unsigned long long b,
                                          int accumulate) {
    asm volatile(
        "{ .reg .pred first, more; setp.ne.b32 first, %32, 0; setp.eq.b32 more, 0, 0;\n"
        ".reg .b64 a, b;\n"
        STEP(35, 36, first) STEP(37, 38, more) STEP(39, 40, more) STEP(41, 42, more) "}"
        : SUM_TILES(0), SUM_TILES(4)
        : "r"(accumulate), "l"(b), "l"(a), A_IN_SMEM(0), A_IN_SMEM(1), A_IN_SMEM(2), A_IN_SMEM(3));
}
#undef STEP

using DqColumns = float[1][DQ_COLUMNS / 8][4];

/// The warpgroup that makes dQ = dS K of each tile of queries and adds it to what other blocks of keys make of it.
struct DqConsumer {
    const Params& params;
    const Shared& shared;
    const ConsumerRelease consumer_release{shared.address};
    Ring<KEY_STAGES> keys{0};
    Ring<STAGES> queries{0};
    unsigned keys_at;  // where those of the block are
    float factor;      // of dQ
    DqSemaphore semaphore;       // of the warp, where sums have an order

    /// dS K over the keys of consumers FIRST to LAST, of COLUMNS columns; MORE: added to what is under way.
    template <int FIRST, int LAST, bool MORE = false>
    static DEVICE void start(DqColumns& dq, unsigned long long dscores, unsigned long long k) {
        wgmma_fence();
        UNROLL for (int consumer = FIRST; consumer <= LAST; ++consumer) {
            const int step = consumer * OWN_KEYS / 16;
            multiply_query_gradient_async<ColumnSteps<BLOCK_Q>, RowSteps>(
                dq[0], dscores + ColumnSteps<BLOCK_Q>::at(step), k + RowSteps::at(step), MORE || consumer > FIRST);
        }
        wgmma_commit();
    }

    static DEVICE bool in_cluster() { return Cluster::blocks() > 1; }

    /// Of dQ, those that the block makes.
    static DEVICE int first_column() { return Cluster::rank() * DQ_COLUMNS; }
    static DEVICE int end_column() { return in_cluster() ? first_column() + DQ_COLUMNS : PADDED_HEAD_DIM; }

    /// The block's dS goes to the other one of the pair, and that one's comes. Where it goes both dQ consumers are done with the tile two
    /// turns before: or no consumer would have written this one.
    DEVICE void exchange() const {
        if (threadIdx.x % 128 != 0) return;
        const unsigned full = shared.others_full(queries.stage);
        barrier_arrive_expecting(full, DScoresTile::BYTES);
        Cluster::send(shared.other_dscores(queries.stage), shared.dscores(queries.stage), DScoresTile::BYTES, full);
    }

    /// Where sums have an order: this tile's turn in it, and that of those before is over.
    DEVICE void take_turn(int row_block) {
        if (params.dq_semaphore != nullptr) semaphore.take_turn(row_block);
    }

    /// Columns from `column` on. What a consumer has skipped, it hasn't written. `first_stores`: of the tile, where sums have no order.
    DEVICE void add(const QueryTileInfo& info, FirstStores& first_stores, int column) {
        DqColumns dq;
        const int row_block = FirstStores::row_block(info.place);
        const unsigned long long dscores = descriptor(shared.dscores(queries.stage), 16);
        const unsigned long long k = descriptor(keys_at + column / 64 * KTile::panel(8), BLOCK_KV * 128);
        // FlashAttention-2, Algorithm 2, line 15: dQ += dS K, added to memory in fp32.
        if (KEY_SHARES == 1 || info.tile.live() == 3)
            start<0, KEY_SHARES - 1>(dq, dscores, k);
        else if (info.tile.live() == 1)
            start<0, 0>(dq, dscores, k);
        else
            start<1, 1>(dq, dscores, k);
        if (column == 0) take_turn(row_block);
        if (in_cluster()) {
            barrier_wait(shared.others_full(queries.stage), queries.parity);
            start<0, KEY_SHARES - 1, true>(dq, descriptor(shared.other_dscores(queries.stage), 16),
                                           descriptor(shared.other_keys(), BLOCK_KV * 128));
        }
        wgmma_wait<0>(dq);
        if (column + DQ_COLUMNS >= end_column()) consumer_release.arrive(shared.dscores_empty(queries.stage));
        if (factor != 1)
            UNROLL for (int i = 0; i < DQ_COLUMNS / 2; ++i) dq[0][i / 4][i % 4] *= factor;
        const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        float* sum = params.dq_sum + (row_block + warp) * (long long)(ROW_BLOCK * PADDED_HEAD_DIM) + column * ROW_BLOCK + lane * 4;
        if (first_stores.stores(params, info.place)) {
            UNROLL for (int n = 0; n < DQ_COLUMNS / 8; ++n)
                *(float4*)(sum + n * 128) = float4{dq[0][n][0], dq[0][n][1], dq[0][n][2], dq[0][n][3]};
        } else {
            UNROLL for (int n = 0; n < DQ_COLUMNS / 8; ++n) add_four(sum + n * 128, dq[0][n]);
        }
    }

    DEVICE void work_on() {
        keys_at = uniform(shared.keys(keys.stage));
        const float scale = context_of(params, shared.work(keys.stage), 0).scale, effective = effective_scale<Dtype>(scale);
        // The kernel that rounds dQ knows the scale, if it is a number of the call.
        factor = effective == scale | scale == 0 ? 1 : effective / scale;
        while (true) {
            barrier_wait(shared.dscores_full(queries.stage), queries.parity);
            const QueryTileInfo info = shared.query_tile_info(queries.stage, queries.parity);
            if (in_cluster()) exchange();
            if (params.dq_sum == nullptr) {  // another kernel makes dQ
                warp_arrive(shared.dscores_empty(queries.stage));
            } else {
                FirstStores first_stores;
#pragma unroll (IN_CLUSTER ? 1 : PADDED_HEAD_DIM / DQ_COLUMNS)
                for (int column = first_column(); column < end_column(); column += DQ_COLUMNS) add(info, first_stores, column);
            }
            queries.advance();
            if (info.tile.last()) return;
        }
    }

    /// The last keys of a sequence and head go first, see `find_key_work`.
    DEVICE DqSemaphore semaphore_of(const KeyWork& work) const {
        const int head = key_head(params, work), warp = threadIdx.x % 128 / 32;
        const int before = params.cu_seqlens_kv == nullptr ? 0 : work.kv_start / BLOCK_KV + work.sequence;
        return {params.dq_semaphore + (4LL * head + warp) * params.kv_blocks + before + work.kv_block,
                (KvOrder::end(work.kv_len) - 1) / BLOCK_KV - work.kv_block};
    }

    DEVICE void run() {
        while (true) {
            barrier_wait(shared.keys_full(keys.stage), keys.parity);
            const int order = shared.order(keys.stage);
            if (order == END) return;
            if (params.dq_semaphore != nullptr) semaphore = semaphore_of(shared.work(keys.stage));
            if (order & DIFFERENTIATE) work_on();
            if (params.dq_semaphore != nullptr) semaphore.leave();
            if (params.finished != nullptr) count_finished(params.finished + key_head(params, shared.work(keys.stage)), 1);
            barrier_arrive(shared.keys_empty(keys.stage));  // each lane for itself, as the consumers do
            keys.advance();
        }
    }
};
// ---------------------------------------------------------------- the kernel

/// FlashAttention-2, Algorithm 2: keys outermost. One warp loads by TMA, two warpgroups own keys and make dS, dK and dV of
/// them, one makes dQ of dS and adds it up in global memory.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    causal_backward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
             const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap dout_map,
             const __grid_constant__ Params params) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Shared shared(shared_address(memory));
    let_others_begin();
    if (threadIdx.x == 0) shared.init(Cluster::blocks());
    __syncthreads();
    Cluster::begin();
    const int warpgroup = uniform(threadIdx.x / 128);
    if (warpgroup < CONSUMERS) {
        // FlashAttention-3, Algorithm 3, consumer warpgroups: S, P, dP and dS of each tile, dV and dK.
        take_registers<208>();
        run_consumer(params, shared, warpgroup);
    } else if (warpgroup == CONSUMERS) {
        // FlashAttention-3, Algorithm 3, dQ writer: here a warpgroup, which also multiplies dS K.
        give_registers<64>();
        DqConsumer dq_consumer = {params, shared};
        dq_consumer.run();
    } else {
        // FlashAttention-3, Algorithm 3, producer: loads K, V, Q and dO by TMA.
        give_registers<32>();
        run_producer(params, q_map, k_map, v_map, dout_map, shared, uniform(threadIdx.x / 32) - 4 * (CONSUMERS + 1));
    }
    Cluster::begin();
}
