#include "tiles/group_tiles.cuh"

/// The tiles of which some group of rows keeps keys, in descending order. Lanes classify as many at once as they can.
template <class Order, int GROUPS, class KindOf>
struct DescendingTiles {
    static constexpr int BLOCK_KV = Order::BLOCK, TILES = 32 / GROUPS;
    static constexpr unsigned GROUP = (1u << GROUPS) - 1;

    const TileRange& own;         // of the lane
    const int begin;              // the least slot of all lanes
    KindOf& kind_of;
    int kv_len;
    int next;                     // first slot of the last tile that isn't classified
    unsigned live = 0, full = 0;  // from bit GROUPS * i on the tile i tiles below the first of a batch

    /// `all` spans the ranges of all lanes.
    __device__ __forceinline__ DescendingTiles(const TileRange& own, const TileRange& all, int kv_len, KindOf& kind_of)
        : own(own), begin(all.begin), kind_of(kind_of), kv_len(kv_len), next((all.end - 1) / BLOCK_KV * BLOCK_KV) {
        if (all.end <= all.begin) next = -1;
    }

    __device__ __forceinline__ GroupTile advance() {
        while (live == 0) {
            if (next + BLOCK_KV <= begin || next < 0) return {};
            const int lane = threadIdx.x % 32, slot = next - lane / GROUPS * BLOCK_KV;
            TileKind kind = EMPTY;
            if (lane < TILES * GROUPS && slot >= 0 && slot + BLOCK_KV > own.begin && slot < own.end)
                kind = classify<Order>(own, slot, kv_len, kind_of);
            live = __ballot_sync(~0u, kind != EMPTY);
            full = __ballot_sync(~0u, kind == FULL);
            next -= TILES * BLOCK_KV;
        }
        const int tile = (__ffs(live) - 1) / GROUPS, shift = tile * GROUPS;
        const GroupTile found = {next + (TILES - tile) * BLOCK_KV, live >> shift & GROUP, full >> shift & GROUP};
        live &= ~(GROUP << shift);
        return found;
    }
};
