#include "attncc/layout.cuh"
#include "attncc/mma_16bit.cuh"
#include "attncc/pipeline.cuh"
#include "attncc/warpgroup.cuh"
#include "attncc/wgmma.cuh"

// P V of 8-bit operands: wgmma sums over what is contiguous in shared memory, so three warps transpose V between TMA and
// the consumers (Shah et al., "FlashAttention-3", 2024, section 3.3).
//
// Bytes are moved in pairs. A fragment of ldmatrix.trans holds, of two keys, two columns each; of two such fragments, 8
// keys apart, a permutation of bytes makes a word for each of the columns. That is done in an order that no shuffle
// needs to mend, neither before nor after:
//   keys      of each 16, words of keys 2c, 2c + 1, 2c + 8, 2c + 9, for c = 0 to 3: so the scores that a lane holds of
//             two column tiles are, packed, a word of the A operand;
//   columns   of each 16 the even ones, then the odd ones: so a lane holds four neighbouring columns of the output in
//             two column tiles (`ColumnsInFours`).

constexpr int STEP_KEYS = 32;          // that one product sums over
constexpr int TRANSPOSING_WARPS = 3;   // those that share a warpgroup with the producer
constexpr int TRANSPOSING_BARRIER = 7;  // behind those of warpgroup.cuh

/// V transposed: a row for each column, in panels of 128 keys.
template <class Loaded, int COLUMNS>
using MultipliedValues = SharedTile<COLUMNS, (Loaded::ROWS + 127) / 128 * 128>;

/// A pipeline whose values pass through the hands of warps that transpose them: `loaded` barriers join these with TMA, and
/// `values` barriers with the consumers. With each loaded tile comes the number of its rows to keep, or that there are no more.
template <int STAGES, int WARPGROUPS, int GROUPS>
struct ValuesPipeline : Pipeline<STAGES, WARPGROUPS, GROUPS> {
    using Base = Pipeline<STAGES, WARPGROUPS, GROUPS>;
    static constexpr int LOADED_AT = (Base::BYTES + 7) / 8 * 8, ROWS_AT = LOADED_AT + 16 * STAGES;
    static constexpr int END = -1;

    __device__ __forceinline__ unsigned loaded_full(int stage) const { return Base::base + LOADED_AT + 8 * stage; }
    __device__ __forceinline__ unsigned loaded_empty(int stage) const {
        return Base::base + LOADED_AT + 8 * (STAGES + stage);
    }

    __device__ __forceinline__ void init() const {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(loaded_full(stage), 1);
            barrier_init(loaded_empty(stage), 1);
        }
        Base::init();
    }

    /// By one lane, before it arrives at the stage's full barrier.
    __device__ __forceinline__ void write_rows(int stage, int rows) const { store_word(rows_at(stage), rows); }

    __device__ __forceinline__ void write_end(int stage) const {
        write_rows(stage, END);
        barrier_arrive(loaded_full(stage));
    }

    __device__ __forceinline__ int read_rows(int stage) const { return uniform((int)load_word(rows_at(stage))); }

private:
    __device__ __forceinline__ unsigned rows_at(int stage) const { return Base::base + ROWS_AT + 4 * stage; }
};

template <class ValuesTile>
using ValuesSteps = ColumnSteps<ValuesTile::ROWS>;

/// Probabilities of column tiles to pairs of operands, halves of words.
template <class Dtype, int TILES>
__device__ __forceinline__ void pack_pairs(unsigned short (&pairs)[TILES][2], const float (*x)[4]) {
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i) pairs[i / 2][i % 2] = Dtype::pack_two(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
}

/// The A operand of a step, from the pairs of four tiles of 8 keys.
__device__ __forceinline__ void join_pairs(unsigned (&words)[4], const unsigned short (*pairs)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = pairs[i / 2 * 2][i % 2] | (unsigned)pairs[i / 2 * 2 + 1][i % 2] << 16;
}

/// The same from their probabilities.
template <class Dtype>
__device__ __forceinline__ void pack_probs(unsigned (&words)[4], const float (*x)[4]) {
    unsigned short pairs[4][2];
    pack_pairs<Dtype>(pairs, x);
    join_pairs(words, pairs);
}

__device__ __forceinline__ void store_matrices(unsigned address, const unsigned (&x)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}

/// The address of a chunk of 16 bytes of a tile that is all panels of 128 bytes.
template <class Tile>
__device__ __forceinline__ unsigned chunk_address(unsigned tile, int row, int chunk) {
    static_assert(Tile::WIDE_END == Tile::CHUNKS, "no narrower panels");
    return tile + Tile::panel(chunk / 8 * 8) + Tile::template in_panel<128>(row, chunk % 8);
}

/// Transposes a tile; warp number `warp` of those that share it does its part: units of 32 keys and up to 64 columns. All
/// loads of a unit are under way before the first is used: one after another, they would set the pace of the kernel.
template <class Loaded, class Transposed>
__device__ __forceinline__ void transpose_tile(unsigned loaded, unsigned transposed, int warp) {
    constexpr int COLUMN_BLOCKS = Transposed::ROWS / 16;  // of 16 columns: a chunk of a loaded row
    constexpr int BLOCKS = COLUMN_BLOCKS % 4 == 0 ? 4 : COLUMN_BLOCKS % 2 == 0 ? 2 : 1;  // of a unit, in one panel
    constexpr int UNITS_A_STRIP = COLUMN_BLOCKS / BLOCKS, UNITS = Loaded::ROWS / 32 * UNITS_A_STRIP;
    const int lane = threadIdx.x % 32;
    const unsigned from_lane = chunk_address<Loaded>(loaded, lane, 0);
    const unsigned to_lane = chunk_address<Transposed>(transposed, lane / 8 % 2 * 8 + lane % 8, lane / 16);
#pragma unroll 1
    for (unsigned unit = warp; unit < UNITS; unit += TRANSPOSING_WARPS) {
        const int strip = unit / UNITS_A_STRIP, first = unit % UNITS_A_STRIP * BLOCKS;
        // Rows are 8 apart, or more: their swizzle is the lane's.
        const unsigned from = (from_lane ^ first % 8 * 16) + first / 8 * Loaded::ROWS * 128 + strip * 32 * 128;
        const unsigned to = (to_lane ^ strip % 4 * 32) + strip / 4 * Transposed::ROWS * 128 + first * 16 * 128;
        unsigned keys[BLOCKS][4];
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) load_matrices_transposed(keys[block], from ^ block * 16);
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            unsigned columns[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                columns[i] = __byte_perm(keys[block][i / 2 * 2], keys[block][i / 2 * 2 + 1], i % 2 == 0 ? 0x6420 : 0x7531);
            store_matrices(to + block * 16 * 128, columns);
        }
    }
}

/// What the warps from FIRST_WARP on do until there are no more values.
template <class Loaded, class Transposed, int FIRST_WARP, class Shared>
__device__ __forceinline__ void transpose_values(const Shared& shared) {
    constexpr int THREADS_HERE = 32 * TRANSPOSING_WARPS;
    const int warp = uniform((int)threadIdx.x / 32) - FIRST_WARP;
    for (Ring<STAGES> ring{0};; ring.advance()) {
        const int stage = ring.stage;
        barrier_wait(shared.loaded_full(stage), ring.parity);
        const int rows = shared.read_rows(stage);
        if (rows == Shared::END) return;
        barrier_wait(shared.values_empty(stage), ring.parity ^ 1);
        if (rows < Loaded::ROWS) clear_rows<Loaded, THREADS_HERE>(shared.loaded(stage), rows, TRANSPOSING_BARRIER);
        transpose_tile<Loaded, Transposed>(shared.loaded(stage), shared.values(stage), warp);
        fence_async();
        named_wait(TRANSPOSING_BARRIER, THREADS_HERE);
        if (threadIdx.x == 32 * FIRST_WARP) {
            barrier_arrive(shared.loaded_empty(stage));
            barrier_arrive(shared.values_full(stage));
        }
    }
}
