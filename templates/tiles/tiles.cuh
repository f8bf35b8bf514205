#include "common/math.cuh"
#include "tiles/tile_kind.cuh"

/// A tile of keys: its first kv_idx and what the mask keeps of it. EMPTY: there is none.
struct Tile {
    int kv_first;
    TileKind kind;
};

/// The keys that a block of queries looks at, as slots (tiles_1d.cuh): [begin, end); full ones: [full_begin, full_end).
struct TileRange {
    int begin, full_begin, full_end, end;

    /// What it keeps of the tile that begins with this slot.
    template <int BLOCK>
    __device__ __forceinline__ TileKind kind_at(int slot) const {
        const bool meets = (slot < end) & (slot + BLOCK > begin), full = (slot >= full_begin) & (slot + BLOCK <= full_end);
        return (TileKind)(meets * (PARTIAL + full));
    }
};

/// A range from a multiple of BLOCK on.
template <int BLOCK>
__device__ __forceinline__ TileRange aligned(TileRange range) {
    range.begin = range.begin / BLOCK * BLOCK;
    return range;
}

/// One of `splits` equal shares of the range, in whole tiles.
template <int BLOCK_KV>
__device__ __forceinline__ TileRange share(TileRange range, int split, int splits) {
    const int first = range.begin / BLOCK_KV, tiles = max((range.end + BLOCK_KV - 1) / BLOCK_KV - first, 0);
    const int size = (tiles + splits - 1) / splits;
    range.begin = max(range.begin, (first + split * size) * BLOCK_KV);
    range.end = min(range.end, (first + (split + 1) * size) * BLOCK_KV);
    return range;
}

/// What is kept of a tile that the loop bounds leave open. A tile that reaches beyond the last key is never FULL.
template <class Order, class KindOf>
__device__ __forceinline__ TileKind classify(const TileRange& range, int slot, int kv_len, KindOf& kind_of) {
    if (slot >= range.full_begin && slot + Order::BLOCK <= range.full_end) return FULL;
    const int kv_first = Order::first(slot);
    const TileKind kind = kind_of(kv_first, Order::last(kv_first, kv_len));
    return kind == FULL && !Order::whole(kv_first, kv_len) ? PARTIAL : kind;
}

/// All tiles of a range in ascending order, from its first key on, where nothing is to be passed over. The interface is that
/// of LiveTiles.
template <class Order, bool CLASSIFIES, class KindOf>
struct AllTiles {
    static constexpr int BLOCK_KV = Order::BLOCK;

    const TileRange& range;
    int next;

    __device__ __forceinline__ AllTiles(const TileRange& range, int, KindOf&)
        : range(range), next(range.begin) {}

    __device__ __forceinline__ Tile advance() {
        const int kv_first = next;
        next += BLOCK_KV;
        return {kv_first, kv_first >= range.end ? EMPTY : next <= range.full_end ? FULL : PARTIAL};
    }
};

/// The live tiles of a range, in ascending order from its first key on, 32 at a time as bits. The bounds give the bits by arithmetic; with
/// CLASSIFIES, each lane of the warp asks `kind_of` about one of the tiles that they leave open. EMPTY tiles are passed
/// over, and what follows the last tile is EMPTY.
template <class Order, bool CLASSIFIES, class KindOf>
struct LiveTiles {
    static constexpr int BLOCK_KV = Order::BLOCK;

    const TileRange& range;
    KindOf& kind_of;
    int kv_len;
    int next;                     // the first slot that isn't classified
    unsigned live = 0, full = 0;  // of the 32 tiles before it; those handed out are no longer live

    __device__ __forceinline__ LiveTiles(const TileRange& range, int kv_len, KindOf& kind_of)
        : range(range), kind_of(kind_of), kv_len(kv_len), next(range.begin) {}

    __device__ __forceinline__ Tile advance() {
        while (live == 0) {
            if (next >= range.end) return {0, EMPTY};
            live = tiles_up_to(range.end + BLOCK_KV - 1);
            // A split may end before the full range does.
            full = live & tiles_up_to(range.full_end) & ~tiles_up_to(range.full_begin + BLOCK_KV - 1);
            if (CLASSIFIES) classify_open();
            next += 32 * BLOCK_KV;
        }
        const int bit = __ffs(live) - 1;
        live &= live - 1;
        return {Order::first(next + (bit - 32) * BLOCK_KV), full >> bit & 1 ? FULL : PARTIAL};
    }

private:
    /// Those of the next 32 tiles that end at or before kv_end.
    __device__ __forceinline__ unsigned tiles_up_to(int kv_end) const {
        const int keys = kv_end - next;
        const unsigned tiles = (unsigned)keys / BLOCK_KV;
        return keys <= 0 ? 0 : tiles < 32 ? (1u << tiles) - 1 : ~0u;  // no max(): it isn't a uniform instruction
    }

    __device__ __forceinline__ void classify_open() {
        const int lane = threadIdx.x % 32, kv_first = Order::first(next + lane * BLOCK_KV);
        TileKind kind = full >> lane & 1 ? FULL : EMPTY;
        if ((live & ~full) >> lane & 1) kind = kind_of(kv_first, Order::last(kv_first, kv_len));
        live = __ballot_sync(~0u, kind != EMPTY);
        full = __ballot_sync(~0u, kind == FULL && Order::whole(kv_first, kv_len));
    }
};
