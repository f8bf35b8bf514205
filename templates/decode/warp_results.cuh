#include "decode/merge_rows.cuh"
#include "memory/output.cuh"

/// What a warp knows of its rows, those of slot `slot` on, becomes part `part`: O times `factor`, m and l.
template <class Columns, bool HAS_MAX, int COLUMNS, int M_TILES, int D_TILES, class RowValues>
__device__ __forceinline__ void put_part(const MergeRoom<COLUMNS>& room, int part, int slot, const float (&out)[M_TILES][D_TILES][4],
                                         const RowValues& finished) {
    const int lane = opaque(threadIdx.x) % 32, column = Columns::template first<Unrounded>(lane);
#pragma unroll
    for (int row_pair = 0; row_pair < 2 * M_TILES; ++row_pair) {
        if (slot + 8 * row_pair >= room.rows) break;  // few queries leave the rest of a fragment empty
        const int m = row_pair / 2, r = row_pair % 2, row = slot + 8 * row_pair + lane / 4;
        float* target = room.row(part, row, room.rows) + column;
#pragma unroll
        for (int d = 0; d < D_TILES; d += 2) {
            float x[2][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i / 2][i % 2] = out[m][d + i / 2][2 * r + i % 2] * finished.factor[m][r];
            const int columns = 8 * d + 16 <= COLUMNS ? 16 : COLUMNS - 8 * d - column;
            Columns::template store<Unrounded>(target + 8 * d, x, row < room.rows ? columns : 0, lane);
        }
    }
    // Without a softmax parts just add up.
    store_row_values<M_TILES>(SlotRows{room.weights + part, room.parts, room.rows}, slot,
                              [&](int own) { return HAS_MAX ? finished.row_max[own] : 1.0f; });
    if (!HAS_MAX) return;
    store_row_values<M_TILES>(SlotRows{room.sums + part, room.parts, room.rows}, slot, [&](int own) { return finished.row_sum[own]; });
}

/// Merges parts that all warps have put there. All threads must call.
template <int THREADS, bool HAS_MAX, int COLUMNS, class Results>
__device__ __forceinline__ void merge_warps(const MergeRoom<COLUMNS>& room, const Results& results) {
    __syncthreads();
    if (HAS_MAX) weigh_parts<THREADS>(room, room.parts, 0, room.rows, results);
    __syncthreads();
    float4 sums[FOURS<THREADS, COLUMNS>] = {};
    add_parts<THREADS>(room, room.parts, 0, room.parts, 0, room.rows, sums, results);
}
