// dq_sum: rounds the sum of dQ; bf16, head dim 128
// Written by attncc 0.2.0. Do not edit.
//
// Contents, by line:
//    15  leaf code: element.cuh 15, math.cuh 19, bf16.cuh 37, add_scalar.cuh 51, finished_before.cuh 59,
//        all_stored.cuh 64, output.cuh 69, grid.cuh 137, row_blocks.cuh 184, tiles_1d.cuh 207
//   230  parameters
//   241  the kernel

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

constexpr int ROW_ALIGNMENT = 16;

// ---- element.cuh
// 16-bit floats as raw bits: NVRTC has no cuda_fp16.h.
struct bf16 { unsigned short bits; };

// ---- math.cuh
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

DEVICE long long opaque_long(long long x) {
    asm volatile("" : "+l"(x));
    return x;
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
};

// ---- add_scalar.cuh
// Adding up in global memory, one float at a time: before sm_90.

/// Reads them back.
DEVICE void load_fragment(const float* tile, float (&x)[2][4]) {
    UNROLL for (int i = 0; i < 8; ++i) x[i / 4][i % 4] = tile[i * 32 + threadIdx.x % 32];
}

// ---- finished_before.cuh
// A kernel that begins when the one ahead of it is done. See finished.cuh for the other way.

template <class Params> DEVICE void wait_for_heads(const Params&, int, int) {}

// ---- all_stored.cuh
// A sum that began with zeros.

template <class Params> DEVICE bool has_sum(const Params&, int) { return true; }

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

    /// The first position of the tile that begins with a slot, and the last that it has in a sequence of this length.
    static DEVICE int first(int slot) { return slot; }

    /// The position of a slot of a tile, counted from the tile's first.
    static constexpr DEVICE int offset(int slot) { return slot; }

    /// The position of a slot of the sequence.
    static DEVICE int position(int slot) { return slot; }
};

using Order = TileOrder<ROW_ALIGNMENT, 1, 1>;  // in which rows are kept

constexpr int HEAD_DIM = 128, COLUMN_BLOCKS = 8;
constexpr int WARPS = 128 / 32;
// Beyond 192 columns ptxas would spill some to fit more blocks on a multiprocessor; 0 leaves it the choice.
constexpr int MIN_BLOCKS = HEAD_DIM > 192 ? 1 : 0;

struct Params {
    const float *dq_sum;
    bf16 *dq;
    const int *cu_seqlens_q, *finished;
    long long dq_stride_batch, dq_stride_head, dq_stride_row;
    int batch, num_heads, q_len, row_blocks, group, dq_consumer_warps;
    float factor;
};

/// Rounds the sum of dQ, times `factor`. A warp takes a block of 16 rows of a head at a time. The last thread block ends after
/// the kernel ahead has, so that what comes behind on the stream finds all that either wrote.
extern "C" __global__ void __launch_bounds__(32 * WARPS, MIN_BLOCKS) dq_sum(const __grid_constant__ Params params) {
    const int blocks = all_row_blocks(params);
    for (int first = blockIdx.x * WARPS; first < blocks; first += gridDim.x * WARPS) {
        wait_for_heads(params, first / params.row_blocks, (min(first + WARPS, blocks) - 1) / params.row_blocks);
        const int index = first + threadIdx.x / 32;
        if (index >= blocks) break;
        const Work work = find_row_block(params, index);
        const int q_first = Order::position(work.q_block * ROW_BLOCK);
        const bool summed = has_sum(params, index);
        float dq[1][2 * COLUMN_BLOCKS][4];
        UNROLL for (int column = 0; column < COLUMN_BLOCKS; ++column) {
            float tile[2][4];
            load_fragment(params.dq_sum + ((long long)index * COLUMN_BLOCKS + column) * 256, tile);
            UNROLL for (int i = 0; i < 8; ++i) dq[0][2 * column + i / 4][i % 4] = summed ? tile[i / 4][i % 4] : 0;
        }
        const float scales[1][2] = {{params.factor, params.factor}};
        auto* target = params.dq + work.batch_index * params.dq_stride_batch + work.head * params.dq_stride_head +
                       (work.q_start + (long long)q_first) * params.dq_stride_row;
        store_rows<Dtype, Order, HEAD_DIM>(target, params.dq_stride_row, work.q_len - q_first, 0, dq, scales);
    }
}
