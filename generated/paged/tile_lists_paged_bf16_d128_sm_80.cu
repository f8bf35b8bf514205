// tile_lists: the live tiles of each block of 64 queries of paged_bf16_d128_sm_80
// Written by attncc 0.2.0. Do not edit.
//
// Contents, by line:
//    13  sizes
//    22  leaf code: element.cuh 24, math.cuh 38, keep_all.cuh 72, tiles_1d.cuh 79, grid.cuh 103,
//        head_rows.cuh 164, kept_rows.cuh 184, tile_kind.cuh 201, tiles.cuh 206, load.cuh 240
//   294  paged: Params 296, Context 317, make_context 326, KvBounds 338, kv_bounds 342,
//        tile_kind 352
//   374  a block of queries: tile_lists.cuh 414
//   449  the kernel

// ---------------------------------------------------------------- sizes

constexpr int BLOCK_Q = 64;
constexpr int BLOCK_KV = 32;
constexpr int WARPS = 4;

constexpr int WARP_ROWS = BLOCK_Q / WARPS;
constexpr int M_TILES = WARP_ROWS / 16;            // of 16 rows each, the rows of a warp

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

/// x, which is the same in all lanes: the compiler then keeps it, and what is computed from it, once for the warp. Not to
/// be called under a condition: ptxas 13.0 may make the branch a predicate, use its register for another value too early,
/// and so leave the result unset.
__device__ __forceinline__ int uniform(int x) {
    int result;
    asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
    return result;
}

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

template <class T>
__device__ __forceinline__ T* opaque(T* x) {
    asm volatile("" : "+l"(x));
    return x;
}

// ---- keep_all.cuh

/// No dropout. The interface is that of philox.cuh.
template <int M_TILES>
struct Dropout {
};

// ---- tiles_1d.cuh

/// Where the rows (or keys) of a tile stand: a tile is SIZE positions in a row (1-D). See tiles_2d.cuh for tiles of a grid.
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

/// The rows and the keys of the sequence that `work` names.
template <class AnyWork, class Params>
__device__ __forceinline__ void find_rows(AnyWork& work, const Params& params) {
    find_q_rows(work, params);
    find_span(work.kv_start, work.kv_len, params.cu_seqlens_kv, work.sequence, params.kv_len);
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

// ---- head_rows.cuh

/// The rows of a tile of Q: those of one query head, where `Order` says. See group_rows.cuh for the other way.
template <class Order>
struct QueryRows {
    const Work& work;
    int first, last;  // q_idx

    __device__ __forceinline__ QueryRows(const Work& work, int first)
        : work(work), first(first), last(Order::last(first, work.q_len)) {}

    template <class Params>
    __device__ __forceinline__ QueryRows(const Params& params, const Work& work)
        : QueryRows(work, Order::first(work.q_block * Order::BLOCK)) {}

    __device__ __forceinline__ bool exist() const { return (unsigned)first < (unsigned)work.q_len; }

    __device__ __forceinline__ bool holds(int slot) const { return Order::offset(slot) < work.q_len - first; }
};

// ---- kept_rows.cuh

/// What a lane knows of its rows. They are made anew wherever they are used: kept in between, they would take registers from
/// the products.
template <class Order, int M_TILES>
struct LaneRows {
    int q_first, q_last;  // of the block
    int slot;             // this warp's first

    __device__ __forceinline__ LaneRows(const QueryRows<Order>& rows, int slot)
        : q_first(rows.first), q_last(rows.last), slot(slot) {}

    /// Of the warp, where tiles are 1-D.
    __device__ __forceinline__ int first() const { return min(opaque(q_first + slot), q_last); }
    __device__ __forceinline__ int last() const { return min(opaque(q_first + slot) + 16 * M_TILES - 1, q_last); }
};

// ---- tile_kind.cuh

// What a tile holds: no kept pair, anything, only kept pairs.
enum TileKind { EMPTY, PARTIAL, FULL };

// ---- tiles.cuh

/// The keys that a block of queries has to look at, as slots (see tiles_1d.cuh): [begin, end), of which [full_begin, full_end)
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

using QOrder = TileOrder<BLOCK_Q, 1, 1>;
using KvOrder = TileOrder<BLOCK_KV, 1, 1>;

using Rows = QueryRows<QOrder>;

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
#line 332 "tile_lists_paged_bf16_d128_sm_80.cu"
    ctx.difference_2 = (long long)ctx.length - ctx.q_len;
    return ctx;
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
    int warp_row;         // this warp's first slot (see tiles_1d.cuh) of the block
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
