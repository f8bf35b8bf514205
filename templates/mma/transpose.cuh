#include "memory/layout.cuh"
#include "mma/load_matrices.cuh"

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
