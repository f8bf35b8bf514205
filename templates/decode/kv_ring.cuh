#include "memory/copy.cuh"
#include "tiles/tiles.cuh"

/// The tiles of a range (see LiveTiles), loaded into a ring of STAGES places while earlier ones are worked on, by all threads of the
/// block, which must make the same calls. AT_ONCE of them are in hand at once, by which STAGES can be divided. A tile is made of CHUNKS chunks, each as long as a warp works on at once: those of K, then
/// those of V. Nothing beyond the last key is read: zeros take its place. `copies_landed()`: landed.cuh, landed_for_wgmma.cuh.
template <int STAGES, int AT_ONCE, int CHUNKS, int THREADS, class KTile, class VTile, int KEY_BYTES, int VALUE_BYTES, class AnyRows,
          class Tiles>
struct KvRing {
    static constexpr int AHEAD = STAGES - AT_ONCE, FIRST = AHEAD == 0 ? AT_ONCE : AHEAD;
    static constexpr int PENDING = AHEAD == 0 ? 0 : AHEAD / AT_ONCE - 1;  // groups of copies, of AT_ONCE tiles each
    static constexpr int STAGE_BYTES = CHUNKS * (KTile::BYTES + VTile::BYTES);

    struct Order {
        static constexpr __device__ __forceinline__ int offset(int slot) { return slot; }
    };

    const AnyRows& rows;
    Tiles& tiles;
    unsigned buffers;
    int place = 0;       // of the first tile in hand
    Tile queue[STAGES];  // the tiles in hand, and those ahead of them

    /// Starts to load the first tiles. `load_beside` issues copies of the caller, which come with the first tile.
    template <class LoadBeside>
    __device__ __forceinline__ KvRing(const AnyRows& rows, Tiles& tiles, unsigned buffers, LoadBeside load_beside)
        : rows(rows), tiles(tiles), buffers(buffers) {
#pragma unroll 1
        for (int i = 0; i < FIRST; ++i) {
            shift(FIRST, 1);
            Tile& next = queue[FIRST - 1];
            next = tiles.advance();
            if (i == 0) await_kernel_ahead();
            if (AHEAD > 0) load(next, i);
            if (i == 0) load_beside();
            if (AT_ONCE == 1 || i % AT_ONCE == AT_ONCE - 1) copy_commit();
        }
    }

    __device__ __forceinline__ bool live() const { return queue[0].kind != EMPTY; }
    /// One of the tiles in hand; EMPTY if there are fewer.
    __device__ __forceinline__ Tile tile(int number) const {
        Tile found = queue[0];
#pragma unroll
        for (int i = 1; i < AT_ONCE; ++i) found = number == i ? queue[i] : found;
        return found;
    }

    __device__ __forceinline__ unsigned keys(int number, int chunk) const {
        return buffers + (place + number) * STAGE_BYTES + chunk * KTile::BYTES;
    }

    __device__ __forceinline__ unsigned values(int number, int chunk) const {
        return buffers + (place + number) * STAGE_BYTES + CHUNKS * KTile::BYTES + chunk * VTile::BYTES;
    }

    /// Returns when the caller's own copies are in shared memory, and the first tile, if some are loaded ahead.
    __device__ __forceinline__ void wait_first() const {
        copy_wait<PENDING>();
        copies_landed();
        __syncthreads();
    }

    /// Returns when the tiles in hand are in shared memory. Then all warps have left those before them: what takes their places
    /// is asked for.
    __device__ __forceinline__ void wait() {
        if (AHEAD == 0) {
            __syncthreads();
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) load(queue[i], i);
            copy_commit();
        }
        copy_wait<PENDING>();
        copies_landed();
        __syncthreads();
        if (AHEAD == 0) return;
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            queue[AHEAD + i] = tiles.advance();
            load(queue[AHEAD + i], (place == 0 ? AHEAD : place - AT_ONCE) + i);
        }
        copy_commit();
    }

    __device__ __forceinline__ void step() {
        if (AHEAD == 0) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) queue[i] = tiles.advance();
        }
        shift(STAGES, AT_ONCE);
        place = place == AHEAD ? 0 : place + AT_ONCE;
    }

    /// Returns when nothing is on its way to the ring, and all warps have left it.
    __device__ __forceinline__ void drain() const {
        copy_wait<0>();
        __syncthreads();
    }

private:
    __device__ __forceinline__ void shift(int count, int by) {
#pragma unroll
        for (int i = by; i < count; ++i) queue[i - by] = queue[i];
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
