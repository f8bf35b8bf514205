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
