#include "tiles/tile_kind.cuh"
#include "common/math.cuh"

/// The queries that keep some key of a range, as slots (see tiles_1d.cuh): [begin, end), of which [full_begin, full_end) keep
/// all of them.
struct QueryRange {
    int begin, full_begin, full_end, end;
};

/// A tile of queries as two consumers of keys see it: whether there are keys that it keeps, and whether it keeps all of them, in
/// a bit for each consumer. A tile begins at a multiple of 64 slots: `word` holds the rest in the bits below.
struct QueryTile {
    int head, word;
    bool ends_head;  // the last of it

    static constexpr int FULL_AT = 2, LAST = 16, SHARED = 32;

    __device__ __forceinline__ int slot() const { return word & -64; }
    __device__ __forceinline__ unsigned live() const { return word & 3; }
    __device__ __forceinline__ unsigned full() const { return word >> FULL_AT & 3; }
    __device__ __forceinline__ bool last() const { return word & LAST; }      // of the block of keys
    __device__ __forceinline__ bool shared() const { return word & SHARED; }  // its last rows belong to another sequence
};

/// The live tiles of a block of keys in ascending order, head after head of the group. The lanes of a warp classify 16 tiles at
/// once, each for the keys of one consumer. `Keys` knows heads and mask: `last_head()`, and for the keys of the lane's consumer
/// `range()` in the head that `begin_head(head)` was told, and `kind(head, slot)`.
template <int BLOCK_Q, class Keys>
struct QueryTiles {
    const Keys& keys;
    int head;
    int next = 0, end = 0;        // of the head: the first slot that isn't classified, and that behind the last
    unsigned live = 0, full = 0;  // of the 16 tiles before `next`, two bits each; those handed out are no longer live

    __device__ __forceinline__ QueryTiles(const Keys& keys, int first_head) : keys(keys), head(first_head - 1) { find(); }

    /// Whether a tile is left.
    __device__ __forceinline__ bool more() const { return live != 0; }

    __device__ __forceinline__ QueryTile take() {
        const int shift = (__ffs(live) - 1) & ~1, slot = next + (shift / 2 - TILES) * BLOCK_Q;
        QueryTile tile = {head, (int)(slot | (live >> shift & 3) | (full >> shift & 3) << QueryTile::FULL_AT), false};
        live &= ~(3u << shift);
        find();
        if (!more()) tile.word |= QueryTile::LAST;
        tile.ends_head = !more() | head != tile.head;
        return tile;
    }

    /// Whether it is known that at most so many are left.
    __device__ __forceinline__ bool few(int most) const {
        return next >= end && __popc((live | live >> 1) & 0x55555555u) <= most && head == keys.last_head();
    }

private:
    static constexpr int TILES = 16;

    __device__ __forceinline__ void find() {
        while (live == 0) {
            if (next < end) {
                classify();
            } else {
                if (head == keys.last_head()) return;
                begin_head();
            }
        }
    }

    __device__ __forceinline__ void begin_head() {
        ++head;
        keys.begin_head(head);
        const QueryRange range = keys.range();
        next = __reduce_min_sync(~0u, range.begin) / BLOCK_Q * BLOCK_Q;
        end = __reduce_max_sync(~0u, range.end);
    }

    __device__ __forceinline__ void classify() {
        const TileKind kind = keys.kind(head, next + thread_index() % 32 / 2 * BLOCK_Q);
        live = __ballot_sync(~0u, kind != EMPTY);
        full = __ballot_sync(~0u, kind == FULL);
        next += TILES * BLOCK_Q;
    }
};
