// transpose_values: V of 8 bits, in tiles of 96 keys and 128 columns, as the kernel after it takes
//     them
// Written by attncc 0.2.0. Do not edit.

constexpr int BLOCK_KV = 96, WARPS = 128 / 32;
constexpr int VALUE_HEAD_DIM = 128, PADDED_VALUE_HEAD_DIM = 128;

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

// ---- barrier.cuh

// Barriers in shared memory (mbarrier, sm_90): a full one counts the bytes that TMA brings, an empty one the warps that have
// read a stage. Named barriers join the warps of a warpgroup.

__device__ __forceinline__ void barrier_init(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/// Makes what `barrier_init` wrote visible to TMA.
__device__ __forceinline__ void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// One arrival for the warp. Its lanes have left what the barrier guards: what they did there together (wgmma, ldmatrix) or
/// before a barrier of theirs is done, and what the producer wrote this lane alone has read.
__device__ __forceinline__ void warp_arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/// One arrival for those lanes that arrive; whether it was the phase's last one.
__device__ __forceinline__ bool last_arrival(unsigned barrier, bool arrives) {
    unsigned pending;  // before
    asm volatile(
        "{ .reg .pred p;\n"
        ".reg .b64 state;\n"
        "setp.ne.u32 p, %2, 0;\n"
        "mov.b64 state, 0;\n"
        "@p mbarrier.arrive.shared::cta.b64 state, [%1];\n"
        "mbarrier.pending_count.b64 %0, state; }"
        : "=r"(pending) : "r"(barrier), "r"((unsigned)arrives)
        : "memory");
    return arrives & (pending == 1);
}

/// Whether the barrier's phase of this parity is over.
__device__ __forceinline__ bool barrier_test(unsigned barrier, unsigned parity) {
    unsigned over;
    asm volatile(
        "{ .reg .pred over;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over; }"
        : "=r"(over) : "r"(barrier), "r"(parity)
        : "memory");
    return over;
}

/// Whether the lane is the one of its warp that asks TMA: the compiler knows that it is alone.
__device__ __forceinline__ bool elected_lane() {
    unsigned elected;
    asm volatile(
        "{ .reg .pred elected;\n"
        "elect.sync _|elected, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, elected; }"
        : "=r"(elected));
    return elected;
}

/// Arrives; the phase then also waits for this many bytes of TMA.
__device__ __forceinline__ void barrier_arrive_expecting(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Waits for the end of the barrier's phase of this parity; one that has just been initialised is past parity 1.
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra DONE;\n"
        "bra WAIT;\n"
        "DONE: }" ::"r"(barrier), "r"(parity)
        : "memory");
}

/// Named barriers 1 to 15; 0 is __syncthreads. `threads` counts those that wait.
__device__ __forceinline__ void named_wait(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Counts among those threads, and goes on.
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// A position in a ring of stages. The parity flips at each turn: consumers begin with 0, a producer, whose stages are
/// all free, with 1.
template <int STAGES>
struct Ring {
    unsigned parity;
    int stage = 0;

    __device__ __forceinline__ explicit Ring(unsigned parity) : parity(parity) {}

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/// The same in one register, where dividing costs less than another.
template <int STAGES>
struct Turns {
    unsigned turn = 0;

    __device__ __forceinline__ int stage() const { return turn % STAGES; }
    __device__ __forceinline__ unsigned parity() const { return turn / STAGES % 2; }
};

// ---- tma.cuh

// The tensor memory accelerator: one thread asks for a box of a tensor, which arrives swizzled in shared memory as a panel of
// a `SharedTile`. Maps are made by the launcher: axes (column, row, head, batch), boxes of 64 columns.

struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map));
}

/// The coordinate of entry `index` of an axis. Entries that share memory, their stride being 0, are one to the map.
__device__ __forceinline__ int coordinate(int index, long long stride) { return stride == 0 ? 0 : index; }

/// The box from (column, row) on, with the map's number of rows; columns and rows outside the tensor become zeros.
__device__ __forceinline__ void tma_load(unsigned target, const TensorMap& map, unsigned barrier, int column, int row,
                                         int head, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
            target),
        "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
        : "memory");
}

/// Bytes as they are, a multiple of 16. `barrier` expects them already.
__device__ __forceinline__ void bulk_load(unsigned target, const void* source, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}

/// The way back; returns when the bytes have been read, so that others may take their place.
__device__ __forceinline__ void bulk_store(void* target, unsigned source, int bytes) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
        "cp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group.read 0;" ::"l"(target), "r"(source), "r"(bytes)
        : "memory");
}

/// Orders this thread's ordinary accesses to shared memory before later ones by TMA and wgmma.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- tma_stretches.cuh

/// Brings a box into the L2 cache, ahead of its load.
__device__ __forceinline__ void tma_fetch_ahead(const TensorMap& map, int column, int row, int head, int batch) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(column), "r"(row),
                 "r"(head), "r"(batch)
                 : "memory");
}

/// The same for a tile whose rows stand as `Order` says.
template <class Tile, class Order>
__device__ __forceinline__ void fetch_ordered_ahead(const TensorMap& map, int position, int head, int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel) tma_fetch_ahead(map, panel * 64, position, head, batch);
}

/// A tile whose rows stand as `Order` says, its first at `position`; what lies outside the tensor becomes zeros. `barrier`
/// expects its bytes already.
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_panels(unsigned target, const TensorMap& map, unsigned barrier, int position, int head,
                                                int batch) {
#pragma unroll
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        tma_load(target + panel * Tile::ROWS * 128, map, barrier, panel * 64, position, head, batch);
}

/// The same; `barrier` counts its bytes.
template <class Tile, class Order>
__device__ __forceinline__ void tma_load_ordered(unsigned target, const TensorMap& map, unsigned barrier, int position,
                                                 int head, int batch) {
    barrier_arrive_expecting(barrier, Tile::BYTES);
    tma_load_panels<Tile, Order>(target, map, barrier, position, head, batch);
}

// ---- layout.cuh

// Tiles in shared memory: no padding, and an access of eight rows at one column meets all 32 banks.

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

/// A tile of ROW_COUNT rows (a multiple of 8) of BYTES_A_ROW bytes (a multiple of 32), cut by columns into panels: as
/// many of 128 bytes as fit, then one of 64, then one of 32. Within a panel rows follow each other, and the number of a
/// 16-byte chunk is XORed with the number of its 128-byte line, as far as the panel has chunks.
///
/// So the address of a chunk is that of the row's chunk 0, XOR a constant, plus a constant for the panel and for whole
/// groups of 8 rows. `Lane` holds the part that isn't constant, for each width of panel; what isn't used costs nothing.
template <int ROW_COUNT, int BYTES_A_ROW>
struct SharedTile {
    static constexpr int ROWS = ROW_COUNT, ROW_BYTES = BYTES_A_ROW, BYTES = ROWS * ROW_BYTES;
    static constexpr int CHUNKS = ROW_BYTES / 16;
    static constexpr int WIDE_END = CHUNKS / 8 * 8;                         // chunks in panels of 128 bytes
    static constexpr int HALF_END = WIDE_END + (CHUNKS - WIDE_END) / 4 * 4;  // and in the one of 64

    struct Lane {
        unsigned wide, half, quarter;
    };

    /// Offset of a row's chunk within a panel of WIDTH bytes.
    template <int WIDTH>
    static __device__ __forceinline__ unsigned in_panel(unsigned row, unsigned chunk) {
        const unsigned line = row / (128 / WIDTH);
        return row * WIDTH + (chunk ^ line % (WIDTH / 16)) * 16;
    }

    /// Where a panel starts whose first chunk is `chunk`.
    static constexpr __device__ __forceinline__ unsigned panel(int chunk) { return chunk * 16 * ROWS; }

    /// `base` is the tile's address, a multiple of 128.
    static __device__ __forceinline__ Lane lane(unsigned base, int row, int chunk) {
        return {base + in_panel<128>(row, chunk), base + in_panel<64>(row, chunk), base + in_panel<32>(row, chunk)};
    }

    /// The lane that many rows below, a multiple of 8.
    static __device__ __forceinline__ Lane down(const Lane& lane, int rows) {
        return {lane.wide + rows * 128, lane.half + rows * 64, lane.quarter + rows * 32};
    }

    /// Address of chunk `chunk` XOR the lane's own, `row` rows below the lane's own: both constants. One of the two rows
    /// must be a multiple of 8.
    static __device__ __forceinline__ unsigned at(const Lane& lane, int row, int chunk) {
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
    static __device__ __forceinline__ Place place(unsigned base, int row, int chunk) {
        if (chunk < WIDE_END) return {base + panel(chunk / 8 * 8) + in_panel<128>(row, chunk % 8), 128};
        if (chunk < HALF_END) return {base + panel(WIDE_END) + in_panel<64>(row, chunk - WIDE_END), 64};
        return {base + panel(HALF_END) + in_panel<32>(row, chunk - HALF_END), 32};
    }
};

// ---- lanes.cuh

// Where lanes read the fragments of tiles in shared memory (mma_16bit.cuh).

/// Of a tile of K.
template <class KTile>
__device__ __forceinline__ typename KTile::Lane key_lane(unsigned keys, int lane) {
    return KTile::lane(keys, lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/// Of a tile of Q, from `first_row` on.
template <class QTile>
__device__ __forceinline__ typename QTile::Lane query_lane(unsigned queries, int first_row, int lane) {
    return QTile::lane(queries, first_row + lane % 16, lane / 16);
}

// ---- mma_16bit.cuh

// The two products of attention on tensor cores: mma.m16n8k16, fp32 accumulators.
//
// Accumulators are x[m][n][i]: of the tile of 16 rows m and 8 columns n, a lane holds row lane/4 + 8*(i/2) and column
// 2*(lane%4) + i%2 for i in 0..3. Two neighbouring tiles of P are, packed pairwise, an A operand as they stand.

__device__ __forceinline__ void load_matrices(unsigned (&x)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address));
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&x)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address));
}

/// scores = Q K^T for all rows of the K tile; `read_queries(step, q)` gives the fragments of 16 columns of Q. Each K fragment
/// serves all M_TILES; `k_lane` is where the lane reads K. `meanwhile(0)`, then `meanwhile(1)`: what may run under the products,
/// once a tile. UNROLLED: of the steps, all but where it is seldom done: they compile for long.
template <class Dtype, class KTile, int UNROLLED = KTile::CHUNKS / 2, int M_TILES, int N_TILES, class ReadQueries, class Meanwhile>
__device__ __forceinline__ void multiply_fragments_keys(float (&scores)[M_TILES][N_TILES][4], ReadQueries read_queries,
                                                        const typename KTile::Lane& k_lane, Meanwhile meanwhile) {
    constexpr int STEPS = KTile::CHUNKS / 2 * Dtype::PARTS;
#pragma unroll
    for (int i = 0; i < M_TILES * N_TILES * 4; ++i) scores[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] = 0;
#pragma unroll UNROLLED
    for (int step = 0; step < STEPS; ++step) {
        unsigned q[M_TILES][4];
        read_queries(step / Dtype::PARTS, q);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) Dtype::take_part(q[m], step % Dtype::PARTS);
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            unsigned k[4];
            load_matrices(k, KTile::at(k_lane, 8 * n, 2 * (step / Dtype::PARTS)));
            Dtype::take_part(k, step % Dtype::PARTS);
#pragma unroll
            for (int m = 0; m < M_TILES; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) Dtype::mma(scores[m][n + half], q[m], k[2 * half], k[2 * half + 1]);
        }
        if (step == 0) meanwhile(0);
        if (step == min(1, STEPS - 1)) meanwhile(1);
    }
}

/// M_TILES * 16 rows of Q, of 16 columns.
template <class QTile, int M_TILES>
__device__ __forceinline__ void load_queries(unsigned (&q)[M_TILES][4], const typename QTile::Lane& q_lane, int step) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) load_matrices(q[m], QTile::at(q_lane, 16 * m, 2 * step));
}

/// scores = Q K^T: the warp's M_TILES * 16 rows of Q from `first_row` on, times all rows of the K tile. Of more than 192 columns,
/// 64 in each round of a loop.
template <class Dtype, class QTile, class KTile, int UNROLLED = QTile::CHUNKS <= 24 ? QTile::CHUNKS / 2 : 4, int M_TILES, int N_TILES>
__device__ __forceinline__ void multiply_queries_keys(float (&scores)[M_TILES][N_TILES][4], unsigned queries,
                                                      int first_row, unsigned keys) {
    auto read = [&](int step, unsigned(&q)[M_TILES][4]) {
        load_queries<QTile>(q, query_lane<QTile>(queries, first_row, threadIdx.x % 32), step);
    };
    multiply_fragments_keys<Dtype, KTile, UNROLLED>(scores, read, key_lane<KTile>(keys, threadIdx.x % 32), [](int) {});
}

/// A warp's rows of Q, which meet many tiles of keys: as many of their columns as REGISTERS hold are kept, the others are read
/// for each tile. `aim` tells where a lane reads (aim_anew.cuh, aim_ahead.cuh).
template <class QTile, int M_TILES, int REGISTERS>
struct QueryFragments {
    static constexpr int STEPS = QTile::CHUNKS / 2;
    static constexpr int ROOM = REGISTERS > 0 ? REGISTERS / (4 * M_TILES) : 0, KEPT = ROOM < STEPS ? ROOM : STEPS;

    unsigned queries;
    int first_row;
    unsigned kept[KEPT + 1][M_TILES][4];  // one more: no array is empty

    /// Q must have come.
    __device__ __forceinline__ QueryFragments(unsigned queries, int first_row) : queries(queries), first_row(first_row) {
#pragma unroll
        for (int step = 0; step < KEPT; ++step) load_queries<QTile>(kept[step], query_lane<QTile>(queries, first_row, threadIdx.x % 32), step);
    }

    template <class Dtype, class KTile, int N_TILES, class Aim, class Meanwhile>
    __device__ __forceinline__ void multiply(float (&scores)[M_TILES][N_TILES][4], const Aim& aim, unsigned keys,
                                             Meanwhile meanwhile) const {
        auto read = [&](int step, unsigned(&q)[M_TILES][4]) {
            if (step < KEPT)
                memcpy(q, kept[step], sizeof(q));
            else
                load_queries<QTile>(q, aim.template query<QTile>(queries, first_row), step);
        };
        multiply_fragments_keys<Dtype, KTile>(scores, read, aim.template key<KTile>(keys), meanwhile);
    }
};

/// out += P V. `to_probs(m, n, x)` turns the four scores of tile (m, n) into probabilities, just before they are packed,
/// so that their registers are free for the next; `dropout.drop(words, m, n)` then clears pairs of tiles n and n + 1.
template <class Dtype, class VTile, int M_TILES, int N_TILES, int D_TILES, class ToProbs, class Dropout>
__device__ __forceinline__ void multiply_probs_values(float (&out)[M_TILES][D_TILES][4],
                                                      float (&scores)[M_TILES][N_TILES][4], unsigned values,
                                                      ToProbs to_probs, Dropout& dropout, int lane = threadIdx.x % 32) {
    const auto v_lane = VTile::lane(values, lane % 16, lane / 16);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) {
        unsigned probs[M_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float(&x)[4] = scores[m][n + half];
                to_probs(m, x);
                probs[m][2 * half] = Dtype::pack(x[0], x[1]);
                probs[m][2 * half + 1] = Dtype::pack(x[2], x[3]);
            }
            dropout.drop(probs[m], m, n);
        }
#pragma unroll
        for (int d = 0; d < D_TILES; d += 2) {
            unsigned v[4];
            load_matrices_transposed(v, VTile::at(v_lane, 8 * n, d));
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) {
                Dtype::mma(out[m][d], probs[m], v[0], v[1]);
                Dtype::mma(out[m][d + 1], probs[m], v[2], v[3]);
            }
        }
    }
}

// ---- transpose.cuh

// V transposed, for P V of 8-bit operands: wgmma sums over what is contiguous in shared memory.
//
// Bytes are moved in pairs. A fragment of ldmatrix.trans holds, of two keys, two columns each; of two such fragments, 8
// keys apart, a permutation of bytes makes a word for each of the columns. That is done in an order that no shuffle
// needs to mend, neither before nor after:
//   keys      of each 16, words of keys 2c, 2c + 1, 2c + 8, 2c + 9, for c = 0 to 3: so the scores that a lane holds of
//             two column tiles are, packed, a word of the A operand;
//   columns   of each 16 the even ones, then the odd ones: so a lane holds four neighbouring columns of the output in
//             two column tiles (`ColumnsInFours`).

constexpr int STEP_KEYS = 32;  // that one product sums over

/// V transposed: a panel for each step of P V, of a row of 32 keys for each column, with the swizzle of 32 bytes. So a tile
/// has no more bytes than V has, whatever its keys.
template <class Loaded, int COLUMNS>
struct MultipliedValues {
    static constexpr int ROWS = COLUMNS, PANEL_BYTES = COLUMNS * STEP_KEYS, BYTES = Loaded::ROWS / STEP_KEYS * PANEL_BYTES;
};

__device__ __forceinline__ void store_matrices(unsigned address, const unsigned (&x)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}

/// Transposes a tile; warp number `warp` of WARPS that share it does its part: units of 32 keys and up to 64 columns. All
/// loads of a unit are under way before the first is used: one after another, they would set the pace of the kernel.
template <class Loaded, class Transposed, int WARPS>
__device__ __forceinline__ void transpose_tile(unsigned loaded, unsigned transposed, int warp) {
    static_assert(Loaded::WIDE_END == Loaded::CHUNKS, "V has no narrower panels than those of 128 bytes");
    constexpr int COLUMN_BLOCKS = Transposed::ROWS / 16;  // of 16 columns: a chunk of a loaded row
    constexpr int BLOCKS = COLUMN_BLOCKS % 4 == 0 ? 4 : COLUMN_BLOCKS % 2 == 0 ? 2 : 1;  // of a unit, in one panel
    constexpr int UNITS_A_STRIP = COLUMN_BLOCKS / BLOCKS, UNITS = Loaded::ROWS / STEP_KEYS * UNITS_A_STRIP;
    const int lane = threadIdx.x % 32;
    const unsigned from_lane = loaded + Loaded::template in_panel<128>(lane, 0);
    const unsigned to_lane = transposed + Loaded::template in_panel<STEP_KEYS>(lane / 8 % 2 * 8 + lane % 8, lane / 16);
#pragma unroll 1
    for (unsigned unit = warp; unit < UNITS; unit += WARPS) {
        const int strip = unit / UNITS_A_STRIP, first = unit % UNITS_A_STRIP * BLOCKS;
        // Rows are 8 apart, or more: their swizzle is the lane's.
        const unsigned from = (from_lane ^ first % 8 * 16) + first / 8 * Loaded::ROWS * 128 + strip * STEP_KEYS * 128;
        const unsigned to = to_lane + strip * Transposed::PANEL_BYTES + first * 16 * STEP_KEYS;
        unsigned keys[BLOCKS][4];
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) load_matrices_transposed(keys[block], from ^ block * 16);
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            unsigned columns[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                columns[i] = __byte_perm(keys[block][i / 2 * 2], keys[block][i / 2 * 2 + 1], i % 2 == 0 ? 0x6420 : 0x7531);
            store_matrices(to + block * 16 * STEP_KEYS, columns);
        }
    }
}

// ---- words.cuh

// Ordinary accesses to shared memory by address.

__device__ __forceinline__ unsigned load_word(unsigned address) {
    unsigned word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address));
    return word;
}

__device__ __forceinline__ void store_word(unsigned address, unsigned word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

__device__ __forceinline__ void load_words(unsigned address, unsigned (&x)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void store_words(unsigned address, const unsigned (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// ---- warpgroup.cuh

// What the threads that multiply do to tiles in shared memory before wgmma reads them. Each warpgroup has a named barrier,
// and all of them together one more.

__device__ __forceinline__ void warpgroup_wait(int warpgroup) { named_wait(1 + warpgroup, 128); }

/// Moves the sign of `scale` into the warpgroup's Q tile, and zero too, so that scores need a positive factor: the one
/// returned.
template <class Dtype, class QTile>
__device__ __forceinline__ float take_sign(unsigned queries, float scale, int warpgroup) {
    if (!(scale <= 0)) return scale;
#pragma unroll 1
    for (int byte = threadIdx.x % 128 * 4; byte < QTile::BYTES; byte += 128 * 4) {
        const unsigned word = load_word(queries + byte);
        store_word(queries + byte, scale == 0 ? 0 : word ^ Dtype::SIGN_BITS);
    }
    fence_async();
    warpgroup_wait(warpgroup);
    return scale == 0 ? 1 : -scale;
}

/// Zeros in place of the rows of a tile from `rows` on: they belong to another sequence, and 0 times what they hold could
/// be NaN. THREADS share the work, all that multiply or those of one warpgroup, and wait for each other at `barrier`.
template <class Tile, int THREADS>
__device__ __forceinline__ void clear_rows(unsigned tile, int rows, int barrier = 1 + THREADS / 128) {
#pragma unroll 1
    for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
#pragma unroll 1
        for (int byte = (rows * 8 + thread_index() % THREADS) * 16; byte < Tile::ROWS * 128; byte += THREADS * 16)
            store_words(tile + panel * Tile::ROWS * 128 + byte, {0, 0, 0, 0});
    fence_async();
    named_wait(barrier, THREADS);
}

/// The scale that products with the keys of a block are to have: its reciprocal must be a number of the dtype, with all its bits.
/// Of one that is too small, 0 included, or too large, the keys take the rest, a power of 2 if it is too large.
template <class Dtype>
__device__ __forceinline__ float effective_scale(float scale) {
    if (fabsf(scale) > Dtype::MOST_SCALE) return __uint_as_float((__float_as_uint(scale) & 0x807fffff) | 0x3f800000);
    return fabsf(scale) >= Dtype::LEAST_SCALE ? scale : copysignf(Dtype::LEAST_SCALE, scale);
}

/// Gives the keys their part, and returns the effective scale. All THREADS that multiply share the work.
template <class Dtype, class KTile, int THREADS>
__device__ __forceinline__ float take_scale(unsigned keys, float scale) {
    const float effective = effective_scale<Dtype>(scale);
    if (effective == scale) return scale;
#pragma unroll 1
    for (int byte = threadIdx.x * 4; byte < KTile::BYTES; byte += THREADS * 4) {
        const unsigned word = load_word(keys + byte);
        store_word(keys + byte, Dtype::pack(Dtype::low(word) * (scale / effective), Dtype::high(word) * (scale / effective)));
    }
    fence_async();
    named_wait(1 + THREADS / 128, THREADS);
    return effective;
}

struct Params {
    unsigned char *values_ahead;
    const int *cu_seqlens_kv;
    long long v_stride_batch, v_stride_head;
    int batch, num_kv_heads, kv_len, kv_tiles;
};

using KvOrder = TileOrder<BLOCK_KV, 1, 1>;
using VTile = SharedTile<BLOCK_KV, (VALUE_HEAD_DIM + 127) / 128 * 128>;
using ValuesTile = MultipliedValues<VTile, PADDED_VALUE_HEAD_DIM>;

/// V of 8 bits in the tiles that P V of the kernel after it takes, so that not each block of queries has to transpose them. A
/// block takes a tile at a time; where a sequence of a packed batch ends, zeros follow.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    transpose_values(const __grid_constant__ TensorMap v_map, const __grid_constant__ Params params) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned loaded = shared_address(memory), transposed = loaded + VTile::BYTES, full = transposed + ValuesTile::BYTES;
    const bool elected = threadIdx.x == 0;
    if (elected) {
        barrier_init(full, 1);
        barrier_init_done();
    }
    __syncthreads();
    const int heads = (params.cu_seqlens_kv == nullptr ? params.batch : 1) * params.num_kv_heads;
    const int items = heads * params.kv_tiles;  // of more tiles than an int counts no GPU has the memory
    unsigned parity = 0;
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const int head = item / params.kv_tiles, batch_index = head / params.num_kv_heads;
        int sequence = batch_index, tile = item % params.kv_tiles, start, length;
        find_sequence<BLOCK_KV>(sequence, tile, params.cu_seqlens_kv, params.kv_len, params.batch);
        find_span(start, length, params.cu_seqlens_kv, sequence, params.kv_len);
        const int first = KvOrder::first(tile * BLOCK_KV), rows = params.cu_seqlens_kv == nullptr ? BLOCK_KV : length - first;
        if (rows <= 0) continue;  // one of those that a packed batch has to spare
        if (elected)
            tma_load_ordered<VTile, KvOrder>(loaded, v_map, full, start + first,
                                             coordinate(head % params.num_kv_heads, params.v_stride_head),
                                             coordinate(batch_index, params.v_stride_batch));
        barrier_wait(full, parity);
        parity ^= 1;
        if (rows < BLOCK_KV) clear_rows<VTile, 32 * WARPS>(loaded, rows);
        transpose_tile<VTile, ValuesTile, WARPS>(loaded, transposed, uniform((int)threadIdx.x / 32));
        fence_async();
        __syncthreads();
        if (elected) bulk_store(params.values_ahead + (long long)item * ValuesTile::BYTES, transposed, ValuesTile::BYTES);
        __syncthreads();
    }
}
