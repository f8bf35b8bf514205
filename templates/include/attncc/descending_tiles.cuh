#include "attncc/tiles.cuh"

/// The live tiles of a range in descending order, each by its first slot in place of its first kv_idx; what follows the last
/// is EMPTY. The lanes of a warp classify 32 tiles at once.
template <class Order, class KindOf>
struct DescendingTiles {
    static constexpr int BLOCK_KV = Order::BLOCK;

    const TileRange& range;
    KindOf& kind_of;
    int kv_len;
    int next;                     // first slot of the last tile that isn't classified
    unsigned live = 0, full = 0;  // bit i: the tile i tiles below the first of a batch; those handed out are no longer live

    __device__ __forceinline__ DescendingTiles(const TileRange& range, int kv_len, KindOf& kind_of)
        : range(range), kind_of(kind_of), kv_len(kv_len), next((range.end - 1) / BLOCK_KV * BLOCK_KV) {
        if (range.end <= range.begin) next = -1;
    }

    __device__ __forceinline__ Tile advance() {
        while (live == 0) {
            if (next + BLOCK_KV <= range.begin || next < 0) return {0, EMPTY};
            classify_batch();
        }
        const int bit = __ffs(live) - 1;
        live &= live - 1;
        return {next + (32 - bit) * BLOCK_KV, full >> bit & 1 ? FULL : PARTIAL};
    }

private:
    __device__ __forceinline__ void classify_batch() {
        const int slot = next - (int)(threadIdx.x % 32) * BLOCK_KV;
        TileKind kind = EMPTY;
        if (slot >= 0 && slot + BLOCK_KV > range.begin) kind = classify<Order>(range, slot, kv_len, kind_of);
        live = __ballot_sync(~0u, kind != EMPTY);
        full = __ballot_sync(~0u, kind == FULL);
        next -= 32 * BLOCK_KV;
    }
};
