#include "attncc/math.cuh"
#include "attncc/tile_kind.cuh"

/// A tile of keys: its first kv_idx (a multiple of block_kv) and what the mask keeps of it. EMPTY: there is none.
struct Tile {
    int kv_first;
    TileKind kind;
};

/// The keys that a block of queries has to look at: [begin, end), of which [full_begin, full_end) are kept by all rows.
struct TileRange {
    int begin, full_begin, full_end, end;
};

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
template <int BLOCK_KV, class KindOf>
__device__ __forceinline__ TileKind classify(const TileRange& range, int kv_first, int kv_len, KindOf& kind_of) {
    const int kv_end = kv_first + BLOCK_KV;
    if (kv_first >= range.full_begin && kv_end <= range.full_end) return FULL;
    const TileKind kind = kind_of(kv_first, min(kv_end, kv_len) - 1);
    return kind == FULL && kv_end > kv_len ? PARTIAL : kind;
}

/// The live tiles of a range, in ascending order. The lanes of a warp classify 32 tiles at once, each tile once; the rest
/// is arithmetic on bits. EMPTY tiles are passed over, and what follows the last tile is EMPTY.
template <int BLOCK_KV, class KindOf>
struct LiveTiles {
    const TileRange& range;
    KindOf& kind_of;
    int kv_len;
    int next;                     // the first kv_idx that isn't classified
    unsigned live = 0, full = 0;  // of the 32 tiles before it; those handed out are no longer live

    __device__ __forceinline__ LiveTiles(const TileRange& range, int kv_len, KindOf& kind_of)
        : range(range), kind_of(kind_of), kv_len(kv_len), next(range.begin / BLOCK_KV * BLOCK_KV) {}

    __device__ __forceinline__ Tile advance() {
        while (live == 0) {
            if (next >= range.end) return {0, EMPTY};
            classify_batch();
        }
        const int bit = __ffs(live) - 1;
        live &= live - 1;
        return {next + (bit - 32) * BLOCK_KV, full >> bit & 1 ? FULL : PARTIAL};
    }

private:
    __device__ __forceinline__ void classify_batch() {
        const int kv_first = next + threadIdx.x % 32 * BLOCK_KV;
        TileKind kind = EMPTY;
        if (kv_first < range.end) kind = classify<BLOCK_KV>(range, kv_first, kv_len, kind_of);
        live = __ballot_sync(~0u, kind != EMPTY);
        full = __ballot_sync(~0u, kind == FULL);
        next += 32 * BLOCK_KV;
    }
};
