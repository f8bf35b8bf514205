#include "memory/copy.cuh"
#include "tiles/tiles.cuh"

/// The tiles of a range (see LiveTiles), loaded into a ring of STAGES places while earlier ones are worked on, by all threads of the
/// block, which must make the same calls. A tile is made of CHUNKS chunks, each as long as a warp works on at once: those of K, then
/// those of V. Nothing beyond the last key is read: zeros take its place. `copies_landed()`: landed.cuh, landed_for_wgmma.cuh.
template <int STAGES, int CHUNKS, int THREADS, class KTile, class VTile, int KEY_BYTES, int VALUE_BYTES, class AnyRows,
          class Tiles>
struct KvRing {
    static constexpr int AHEAD = STAGES - 1;
    static constexpr int STAGE_BYTES = CHUNKS * (KTile::BYTES + VTile::BYTES);

    struct Order {
        static constexpr __device__ __forceinline__ int offset(int slot) { return slot; }
    };

    const AnyRows& rows;
    Tiles& tiles;
    unsigned buffers;
    int place = 0;       // of the tile in hand
    Tile queue[STAGES];  // the tile in hand, and those ahead of it

    /// Starts to load the first tiles. `load_beside` issues copies of the caller, which come with the first tile.
    template <class LoadBeside>
    __device__ __forceinline__ KvRing(const AnyRows& rows, Tiles& tiles, unsigned buffers, LoadBeside load_beside)
        : rows(rows), tiles(tiles), buffers(buffers) {
#pragma unroll 1
        for (int i = 0; i < max(AHEAD, 1); ++i) {
            shift(max(AHEAD, 1));
            Tile& next = queue[max(AHEAD, 1) - 1];
            next = tiles.advance();
            if (i == 0) await_kernel_ahead();
            if (AHEAD > 0) load(next, i);
            if (i == 0) load_beside();
            copy_commit();
        }
    }

    __device__ __forceinline__ bool live() const { return queue[0].kind != EMPTY; }
    __device__ __forceinline__ Tile tile() const { return queue[0]; }
    __device__ __forceinline__ unsigned keys(int chunk) const { return buffers + place * STAGE_BYTES + chunk * KTile::BYTES; }

    __device__ __forceinline__ unsigned values(int chunk) const {
        return buffers + place * STAGE_BYTES + CHUNKS * KTile::BYTES + chunk * VTile::BYTES;
    }

    /// Returns when the caller's own copies are in shared memory, and the first tile, if some are loaded ahead.
    __device__ __forceinline__ void wait_first() const {
        copy_wait<AHEAD == 0 ? 0 : AHEAD - 1>();
        copies_landed();
        __syncthreads();
    }

    /// Returns when the tile in hand is in shared memory. Then all warps have left the tile before it: what takes its place
    /// is asked for.
    __device__ __forceinline__ void wait() {
        if (AHEAD == 0) {
            __syncthreads();
            load(queue[0], 0);
            copy_commit();
        }
        copy_wait<AHEAD == 0 ? 0 : AHEAD - 1>();
        copies_landed();
        __syncthreads();
        if (AHEAD == 0) return;
        queue[AHEAD] = tiles.advance();
        load(queue[AHEAD], place == 0 ? AHEAD : place - 1);
        copy_commit();
    }

    __device__ __forceinline__ void step() {
        if (AHEAD == 0) queue[0] = tiles.advance();
        shift(STAGES);
        place = place == AHEAD ? 0 : place + 1;
    }

    /// Returns when nothing is on its way to the ring, and all warps have left it.
    __device__ __forceinline__ void drain() const {
        copy_wait<0>();
        __syncthreads();
    }

private:
    __device__ __forceinline__ void shift(int count) {
#pragma unroll
        for (int i = 1; i < count; ++i) queue[i - 1] = queue[i];
    }

    __device__ __forceinline__ void load(const Tile& tile, int target) const {
        if (tile.kind == EMPTY) return;
        const unsigned keys = buffers + target * STAGE_BYTES, values = keys + CHUNKS * KTile::BYTES;
        const int first = tile.kv_first, left = rows.kv_len - first;
#pragma unroll
        for (int row = 0; row < CHUNKS * KTile::ROWS; row += KTile::ROWS)
            rows.template load_keys<KTile, Order, THREADS, KEY_BYTES>(keys + row / KTile::ROWS * KTile::BYTES, first + row, left - row);
#pragma unroll
        for (int row = 0; row < CHUNKS * VTile::ROWS; row += VTile::ROWS)
            rows.template load_values<VTile, Order, THREADS, VALUE_BYTES>(values + row / VTile::ROWS * VTile::BYTES, first + row,
                                                                          left - row);
    }
};
