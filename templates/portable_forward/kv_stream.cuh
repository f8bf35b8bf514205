#include "memory/copy.cuh"
#include "tiles/tiles.cuh"

/// The live tiles (see LiveTiles), loaded into a ring of STAGES buffers for K and for V while earlier ones are worked on. Nothing
/// of an EMPTY tile is read. All threads of the block must make the same calls. A tile begins with one basic block:
/// copies are without branches, and run under the products, as do the addresses that they take.
///
/// With one stage, V arrives under Q K^T and the next K under the softmax and P V (FlashAttention-2's order), which takes
/// two barriers a tile; with more, whole tiles are ahead of use, which takes one.
template <int STAGES, class Order, int THREADS, class KTile, class VTile, int KEY_BYTES, int VALUE_BYTES, class AnyRows, class Tiles>
struct KvStream {
    static constexpr int AHEAD = STAGES - 1, FIRST = STAGES == 1 ? 1 : AHEAD;  // tiles ahead, and at the start

    const AnyRows& rows;
    Tiles& tiles;
    unsigned key_buffers, value_buffers;
    int slot = 0;        // of the tile in hand
    Tile queue[STAGES];  // the tile in hand, and those ahead of it

    /// Starts to load the first tiles; their first group takes in the copies that the caller has issued before.
    __device__ __forceinline__ KvStream(const AnyRows& rows, Tiles& tiles, unsigned buffers)
        : rows(rows), tiles(tiles), key_buffers(buffers),
          value_buffers(buffers + STAGES * KTile::BYTES) {
#pragma unroll 1
        for (int i = 0; i < FIRST; ++i) {
            shift(FIRST);
            queue[FIRST - 1] = tiles.advance();
            load_keys(queue[FIRST - 1], i);
            if (STAGES > 1) load_values(queue[FIRST - 1], i);
            copy_commit();
        }
    }

    __device__ __forceinline__ bool live() const { return queue[0].kind != EMPTY; }
    __device__ __forceinline__ Tile tile() const { return queue[0]; }
    __device__ __forceinline__ unsigned keys() const { return key_buffers + slot * KTile::BYTES; }
    __device__ __forceinline__ unsigned values() const { return value_buffers + slot * VTile::BYTES; }

    /// Returns when the first tile, and what the caller had issued before it, is in shared memory.
    __device__ __forceinline__ void wait_first() const {
        copy_wait<STAGES == 1 ? 0 : STAGES - 2>();
        __syncthreads();
    }

    /// Returns when the keys of the tile in hand are in shared memory and all warps have left the tile before it.
    __device__ __forceinline__ void wait_keys() {
        if (STAGES > 1) queue[AHEAD] = tiles.advance();
        copy_wait<STAGES == 1 ? 0 : STAGES - 2>();
        __syncthreads();
    }

    /// Starts what is to be loaded next, in two parts, 0 and 1: under the products with the keys.
    __device__ __forceinline__ void load_ahead(int part) {
        const int free_slot = slot == 0 ? AHEAD : slot - 1;
        if (part == 0 && STAGES > 1) load_keys(queue[AHEAD], free_slot);
        if (part == 0) return;
        load_values(queue[AHEAD], free_slot);
        copy_commit();
    }

    /// Returns when the values of the tile in hand are there. With one stage, all warps have left its keys then.
    __device__ __forceinline__ void wait_values() {
        if (STAGES > 1) return;
        copy_wait<0>();
        __syncthreads();
        next = tiles.advance();
        load_keys(next, 0);
        copy_commit();
    }

    __device__ __forceinline__ void step() {
        if (STAGES == 1) queue[0] = next;
        shift(STAGES);
        slot = slot == AHEAD ? 0 : slot + 1;
    }

private:
    Tile next;  // with one stage: the tile whose keys are on their way

    __device__ __forceinline__ void shift(int count) {
#pragma unroll
        for (int i = 1; i < count; ++i) queue[i - 1] = queue[i];
    }

    __device__ __forceinline__ void load_keys(const Tile& tile, int target) const {
        rows.template load_keys<KTile, Order, THREADS, KEY_BYTES>(key_buffers + target * KTile::BYTES, tile.kv_first,
                                                                  rows_of(tile));
    }

    __device__ __forceinline__ void load_values(const Tile& tile, int target) const {
        rows.template load_values<VTile, Order, THREADS, VALUE_BYTES>(value_buffers + target * VTile::BYTES, tile.kv_first,
                                                                      rows_of(tile));
    }

    __device__ __forceinline__ int rows_of(const Tile& tile) const {
        return tile.kind == EMPTY ? 0 : rows.kv_len - tile.kv_first;
    }
};
