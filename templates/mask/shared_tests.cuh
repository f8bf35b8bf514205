#include "score/scores.cuh"

/// What of a mask is tested, where tests ask of a row for values that rows near it often have too: once for all rows of
/// the warp that have the same, each lane a key of its own, until no row is left.
template <class KvOrder, int M_TILES, int N_TILES>
struct Tests {
    static constexpr int ROWS = 2 * M_TILES, WORDS = (N_TILES + 3) / 4;  // of 32 keys

    unsigned kept[ROWS][(WORDS + 3) / 4];

    /// `test(row, key)` tells of a row and a key of the tile, counted from its first, below `keys`.
    template <class Row, class Test>
    __device__ __forceinline__ Tests(const Row (&rows)[M_TILES][2], int keys, Test test) {
        unsigned open = (1u << ROWS) - 1;  // of the lane's rows
#pragma unroll 1
        for (unsigned lanes = ~0u; lanes != 0; lanes = __ballot_sync(~0u, open != 0)) {
            Row first = rows[0][0];
#pragma unroll
            for (int row = ROWS - 1; row > 0; --row)
                if (open >> row & 1) first = rows[row / 2][row % 2];
            if (open & 1) first = rows[0][0];
            const Row tested = row_of_lane(first, __ffs(lanes) - 1);
            unsigned found[(WORDS + 3) / 4] = {};
#pragma unroll
            for (int word = 0; word < WORDS; ++word) {
                const int slot = min(32 * word + lane_of_tests(), 8 * N_TILES - 1);
                const bool holds = test(tested, min(KvOrder::offset(slot), keys - 1));
                found[word / 4] |= lane_bits(__ballot_sync(~0u, holds)) << word % 4 * 8;
            }
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                if ((open >> row & 1) == 0 || !rows_alike(rows[row / 2][row % 2], tested)) continue;
                memcpy(kept[row], found, sizeof(found));
                open &= ~(1u << row);
            }
        }
    }

    /// Of a row and a group of 32 positions of the lane.
    __device__ __forceinline__ unsigned bits(int m, int r, int group) const { return kept[2 * m + r][group]; }

private:
    /// Of the bits of 32 neighbouring keys those of the lane, as in key_bits.cuh.
    static __device__ __forceinline__ unsigned lane_bits(unsigned word) {
        const unsigned pairs = word >> threadIdx.x % 4 * 2 & 0x03030303u;
        return pairs * 0x01041040u >> 24;  // no two of its terms share a bit
    }
};
