#include "scheduler/grid.cuh"
#include "tiles/tiles.cuh"

// Lists of live tiles: for each block of queries, or each of GROUPS groups of its rows, a word of bits for those of 32 tiles of
// keys that are live, and one for those that are FULL; then those of the next 32 tiles. A pre-pass makes them, kernels walk them.

/// Where the list of a group begins. Blocks of a packed batch are counted as in its grid.
template <int BLOCK_Q, int GROUPS, class Params>
__device__ __forceinline__ uint2* tile_list(const Params& params, const Work& work, int group) {
    const int sequence = params.list_batch > 1 ? work.sequence : 0, head = params.list_heads > 1 ? work.head : 0;
    const int first = params.cu_seqlens_q == nullptr ? 0 : work.q_start / BLOCK_Q + work.sequence;
    const long long list = ((long long)sequence * params.list_heads + head) * params.q_blocks + first + work.q_block;
    return params.tile_lists + (list * GROUPS + group) * params.list_words;
}

/// Makes one of `parts` equal parts of a list. The lanes of the warp test a tile each.
template <class Order, class KindOf>
__device__ __forceinline__ void make_tile_list(uint2* list, const TileRange& all, int part, int parts, int kv_len,
                                               KindOf& kind_of) {
    constexpr int BLOCK = Order::BLOCK;
    const TileRange range = share<32 * BLOCK>(all, part, parts);
    const int lane = threadIdx.x % 32;
    for (int word = range.begin / (32 * BLOCK); word * 32 * BLOCK < range.end; ++word) {
        const int slot = (32 * word + lane) * BLOCK;
        TileKind kind = EMPTY;
        if (slot + BLOCK > range.begin && slot < range.end) kind = classify<Order>(range, slot, kv_len, kind_of);
        const unsigned live = __ballot_sync(~0u, kind != EMPTY), full = __ballot_sync(~0u, kind == FULL);
        if (lane == 0) list[word] = make_uint2(live, full);
    }
}

/// A word of a list, without the tiles outside [first, end).
__device__ __forceinline__ uint2 listed_word(const uint2* list, int index, int first, int end) {
    const int begin = first - 32 * index, last = end - 32 * index;
    if (index < 0 || begin >= 32 || last <= 0) return make_uint2(0, 0);
    uint2 tiles = __ldg(list + index);
    if (begin > 0) tiles.x &= ~0u << begin;
    if (last < 32) tiles.x &= ~(~0u << last);
    return tiles;
}

/// The live tiles of a list that lie in a range, in ascending order; what follows the last is EMPTY. Each lane of the warp
/// looks at 32 tiles, so 1024 EMPTY ones are passed over at once.
template <class Order>
struct ListedTiles {
    const uint2* list;
    int first, end;               // of the range, in tiles: a split's share begins and ends anywhere
    int word;                     // the next to be looked at
    int base = 0;                 // the first of the 32 tiles in hand
    unsigned live = 0, full = 0;  // of these; those handed out are no longer live

    __device__ __forceinline__ ListedTiles(const TileRange& range, const uint2* list)
        : list(list), first(range.begin / Order::BLOCK), end((range.end + Order::BLOCK - 1) / Order::BLOCK),
          word(first < end ? first / 32 : end) {}

    __device__ __forceinline__ Tile advance() {
        while (live == 0) {
            if (32 * word >= end) return {0, EMPTY};
            look();
        }
        const int bit = __ffs(live) - 1;
        live &= live - 1;
        return {Order::first((base + bit) * Order::BLOCK), full >> bit & 1 ? FULL : PARTIAL};
    }

private:
    /// The next 32 tiles of which some are live, if there are any among those that the lanes look at.
    __device__ __forceinline__ void look() {
        const uint2 own = listed_word(list, word + threadIdx.x % 32, first, end);
        const unsigned some = __ballot_sync(~0u, own.x != 0);
        const int source = some == 0 ? 31 : __ffs(some) - 1;
        live = uniform((int)__shfl_sync(~0u, own.x, source));
        full = uniform((int)__shfl_sync(~0u, own.y, source));
        base = 32 * (word + source);
        word += source + 1;
    }
};
