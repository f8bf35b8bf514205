#include "memory/copy.cuh"
#include "tiles/tiles.cuh"

/// Rows of two tensors that the inner loop goes over together: K and V, or Q and dO. Strides are in bytes.
struct RowPair {
    const char *first, *second;
    long long first_stride, second_stride;
    int length;
};

/// The live tiles (see LiveTiles) of a pair of tensors in a ring of STAGES buffers for each, loaded while earlier ones are
/// worked on. Both tiles stay until the step. `load_more(tile, slot)` loads what else belongs to a tile. All threads of the
/// block must make the same calls.
template <int STAGES, class Order, int THREADS, class FirstTile, class SecondTile, int FIRST_BYTES, int SECOND_BYTES, class Tiles, class LoadMore>
struct PairStream {
    static constexpr int AHEAD = STAGES - 1;

    const RowPair& rows;
    Tiles& tiles;
    LoadMore& load_more;
    unsigned first_buffers, second_buffers;
    int slot = 0;        // of the tile in hand
    Tile queue[STAGES];  // the tile in hand, and those ahead of it

    /// Starts to load the first tiles; their first group takes in the copies that the caller has issued before.
    __device__ __forceinline__ PairStream(const RowPair& rows, Tiles& tiles, unsigned buffers, LoadMore& load_more)
        : rows(rows), tiles(tiles), load_more(load_more), first_buffers(buffers),
          second_buffers(buffers + STAGES * FirstTile::BYTES) {
#pragma unroll 1
        for (int i = 0; i < AHEAD; ++i) {
            shift(AHEAD);
            queue[AHEAD - 1] = tiles.advance();
            load(queue[AHEAD - 1], i);
        }
        if (STAGES == 1) queue[0] = tiles.advance();
    }

    __device__ __forceinline__ bool live() const { return queue[0].kind != EMPTY; }
    __device__ __forceinline__ Tile tile() const { return queue[0]; }
    __device__ __forceinline__ unsigned first() const { return first_buffers + slot * FirstTile::BYTES; }
    __device__ __forceinline__ unsigned second() const { return second_buffers + slot * SecondTile::BYTES; }

    /// Returns when the tile in hand is in shared memory and all warps have left the tile before it.
    __device__ __forceinline__ void wait() {
        if (STAGES == 1) {
            __syncthreads();
            load(queue[0], 0);
        }
        copy_wait<STAGES == 1 ? 0 : STAGES - 2>();
        __syncthreads();
        if (STAGES == 1) return;
        queue[AHEAD] = tiles.advance();
        load(queue[AHEAD], slot == 0 ? AHEAD : slot - 1);
    }

    __device__ __forceinline__ void step() {
        if (STAGES == 1) queue[0] = tiles.advance();
        shift(STAGES);
        slot = slot == AHEAD ? 0 : slot + 1;
    }

private:
    __device__ __forceinline__ void shift(int count) {
#pragma unroll
        for (int i = 1; i < count; ++i) queue[i - 1] = queue[i];
    }

    __device__ __forceinline__ void load(const Tile& tile, int target) const {
        if (tile.kind != EMPTY) {
            const int count = rows.length - tile.kv_first;
            load_tile<FirstTile, Order, THREADS, FIRST_BYTES>(first_buffers + target * FirstTile::BYTES,
                                                       rows.first + tile.kv_first * rows.first_stride,
                                                       rows.first_stride, count);
            load_tile<SecondTile, Order, THREADS, SECOND_BYTES>(second_buffers + target * SecondTile::BYTES,
                                                         rows.second + tile.kv_first * rows.second_stride,
                                                         rows.second_stride, count);
            load_more(tile, target);
        }
        copy_commit();
    }
};
