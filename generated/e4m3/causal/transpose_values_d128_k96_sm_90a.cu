// transpose_values: V of 8 bits, in tiles of 96 keys and 128 columns, as the kernel after it takes them
// Written by attncc 0.2.0. Do not edit.
//
// Contents, by line:
//    17  leaf code: math.cuh 17, tiles_1d.cuh 33, finished.cuh 43, grid.cuh 57, barrier.cuh 91, tma.cuh 117,
//        tma_1d.cuh 148, layout.cuh 165, load_matrices.cuh 185, transpose.cuh 191, words.cuh 243, warpgroup.cuh 251
//   264  parameters
//   277  the kernel

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

constexpr int BLOCK_KV = 96, WARPS = 128 / 32;
constexpr int VALUE_HEAD_DIM = 128, PADDED_VALUE_HEAD_DIM = 128;

// ---- math.cuh
/// x, which is the same in all lanes: kept once for the warp, and so is what is computed from it. Not to be called
/// under a condition: ptxas 13.0 may make the branch a predicate, and use its register too early.
DEVICE int uniform(int x) {
    int result;
    asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
    return result;
}

/// threadIdx.x, read anew each time: kept, it and what is computed from it would take registers from a loop.
DEVICE int thread_index() {
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}

// ---- tiles_1d.cuh
/// Where the rows (or keys) of a tile stand: SIZE positions in a row (1-D). The tiles of a sequence, laid out one after
/// the other, are its slots; here slots are positions. See tiles_2d.cuh for tiles of a grid.
template <int SIZE, int WIDTH, int COLUMNS> struct TileOrder {
    static constexpr int BLOCK = SIZE;

    /// The first position of the tile that begins with a slot, and the last that it has in a sequence of this length.
    static DEVICE int first(int slot) { return slot; }
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

// ---- grid.cuh
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

// ---- barrier.cuh
// Barriers in shared memory (mbarrier, sm_90): a full one counts the bytes that TMA brings, an empty one the warps that
// have read a stage. Named barriers join the warps of a warpgroup.

DEVICE void barrier_init(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/// Makes what `barrier_init` wrote visible to TMA.
DEVICE void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

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

/// Stores bytes as they are; returns when they have been read, so that others may take their place.
DEVICE void bulk_store(void* target, unsigned source, int bytes) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
        "cp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group.read 0;" ::"l"(target), "r"(source), "r"(bytes)
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

    /// Offset of a row's chunk within a panel of WIDTH bytes.
    template <int WIDTH> static DEVICE unsigned in_panel(unsigned row, unsigned chunk) {
        const unsigned line = row / (128 / WIDTH);
        return row * WIDTH + (chunk ^ line % (WIDTH / 16)) * 16;
    }
};

// ---- load_matrices.cuh
DEVICE void load_matrices_transposed(unsigned (&x)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address));
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
template <class Loaded, int COLUMNS> struct MultipliedValues {
    static constexpr int ROWS = COLUMNS, PANEL_BYTES = COLUMNS * STEP_KEYS, BYTES = Loaded::ROWS / STEP_KEYS * PANEL_BYTES;
};

DEVICE void store_matrices(unsigned address, const unsigned (&x)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}

/// Transposes a tile; warp number `warp` of WARPS that share it does its part: units of 32 keys and up to 64 columns. All
/// loads of a unit are under way before the first is used: one after another, they would set the pace of the kernel.
template <class Loaded, class Transposed, int WARPS>
DEVICE void transpose_tile(unsigned loaded, unsigned transposed, int warp) {
    static_assert(Loaded::WIDE_END == Loaded::CHUNKS, "V has no narrower panels than those of 128 bytes");
    constexpr int COLUMN_BLOCKS = Transposed::ROWS / 16;  // of 16 columns: a chunk of a loaded row
    constexpr int BLOCKS = COLUMN_BLOCKS % 4 == 0 ? 4 : COLUMN_BLOCKS % 2 == 0 ? 2 : 1;  // of a unit, in one panel
    constexpr int UNITS_A_STRIP = COLUMN_BLOCKS / BLOCKS, UNITS = Loaded::ROWS / STEP_KEYS * UNITS_A_STRIP;
    const int lane = threadIdx.x % 32;
    const unsigned from_lane = loaded + Loaded::template in_panel<128>(lane, 0);
    const unsigned to_lane = transposed + Loaded::template in_panel<STEP_KEYS>(lane / 8 % 2 * 8 + lane % 8, lane / 16);
    NO_UNROLL for (unsigned unit = warp; unit < UNITS; unit += WARPS) {
        const int strip = unit / UNITS_A_STRIP, first = unit % UNITS_A_STRIP * BLOCKS;
        // Rows are 8 apart, or more: their swizzle is the lane's.
        const unsigned from = (from_lane ^ first % 8 * 16) + first / 8 * Loaded::ROWS * 128 + strip * STEP_KEYS * 128;
        const unsigned to = to_lane + strip * Transposed::PANEL_BYTES + first * 16 * STEP_KEYS;
        unsigned keys[BLOCKS][4];
        UNROLL for (int block = 0; block < BLOCKS; ++block) load_matrices_transposed(keys[block], from ^ block * 16);
        UNROLL for (int block = 0; block < BLOCKS; ++block) {
            unsigned columns[4];
            UNROLL for (int i = 0; i < 4; ++i)
                columns[i] = __byte_perm(keys[block][i / 2 * 2], keys[block][i / 2 * 2 + 1], i % 2 == 0 ? 0x6420 : 0x7531);
            store_matrices(to + block * 16 * STEP_KEYS, columns);
        }
    }
}

// ---- words.cuh
// Ordinary accesses to shared memory by address.

DEVICE void store_words(unsigned address, const unsigned (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// ---- warpgroup.cuh
// What consumers do to tiles before wgmma reads them. Each warpgroup has a named barrier, and all have one more.

/// Zeros in place of a tile's rows from `rows` on: they belong to another sequence, and 0 times what they hold may be
/// NaN. THREADS share the work, all that multiply or those of one warpgroup, and wait for each other at `barrier`.
template <class Tile, int THREADS> DEVICE void clear_rows(unsigned tile, int rows, int barrier = 1 + THREADS / 128) {
    NO_UNROLL for (int panel = 0; panel < Tile::ROW_BYTES / 128; ++panel)
        NO_UNROLL for (int at = (rows * 8 + thread_index() % THREADS) * 16; at < Tile::ROWS * 128; at += THREADS * 16)
            store_words(tile + panel * Tile::ROWS * 128 + at, {0, 0, 0, 0});
    fence_async();
    named_wait(barrier, THREADS);
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
    let_others_begin();  // the kernel behind this one waits before it reads V
    const int heads = (params.cu_seqlens_kv == nullptr ? params.batch : 1) * params.num_kv_heads;
    const int items = heads * params.kv_tiles;  // of more tiles than an int counts no GPU has the memory
    unsigned parity = 0;
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const int head = item / params.kv_tiles, batch_index = head / params.num_kv_heads;
        int sequence = batch_index, tile = item % params.kv_tiles, start, length;
        find_sequence<BLOCK_KV>(sequence, tile, params.cu_seqlens_kv, params.kv_len, params.batch);
        find_span(0, start, length, params.cu_seqlens_kv, sequence, params.kv_len);
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
