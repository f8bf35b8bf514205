#include "tiles/group_tiles.cuh"
#include "tiles/tile_lists.cuh"

/// The tiles in descending order that are live to some group of rows, by a list for each of them. Each lane of the warp
/// looks at 32 tiles of the group whose list it brings, so many EMPTY ones are passed over at once.
template <class Order, int GROUPS>
struct GroupLists {
    static constexpr int WORDS = 32 / GROUPS;

    const uint2* list;                    // of the lane's group
    int first, end;                       // of its range, in tiles
    int least;                            // first of all ranges
    int word;                             // the next to be looked at
    int base = 0;                         // the first of the 32 tiles in hand
    unsigned live = 0;                    // of these, to some group; those handed out are no longer live
    unsigned own_live = 0, own_full = 0;  // to the lane's

    /// `all` spans the ranges of all lanes.
    __device__ __forceinline__ GroupLists(const TileRange& own, const TileRange& all, const uint2* list)
        : list(list), first(own.begin / Order::BLOCK), end(own.begin < own.end ? tiles_to(own.end) : 0),
          least(all.begin / Order::BLOCK), word(all.begin < all.end ? (tiles_to(all.end) - 1) / 32 : -1) {}

    __device__ __forceinline__ GroupTile advance() {
        while (live == 0) {
            if (word < 0 || 32 * word + 31 < least) return {};
            look();
        }
        const int bit = 31 - __clz(live);
        live &= ~(1u << bit);
        return {(base + bit) * Order::BLOCK, of_groups<GROUPS>(own_live >> bit & 1), of_groups<GROUPS>(own_full >> bit & 1)};
    }

private:
    static __device__ __forceinline__ int tiles_to(int slot) { return (slot + Order::BLOCK - 1) / Order::BLOCK; }

    /// The next 32 tiles of which some are live, if there are any among those that the lanes look at.
    __device__ __forceinline__ void look() {
        const int lane = threadIdx.x % 32;
        uint2 seen = make_uint2(0, 0);
        if (lane < WORDS * GROUPS) seen = listed_word(list, word - lane / GROUPS, first, end);
        const unsigned some = __ballot_sync(~0u, seen.x != 0);
        const int source = some == 0 ? WORDS - 1 : (__ffs(some) - 1) / GROUPS;
        own_live = __shfl_sync(~0u, seen.x, source * GROUPS + lane % GROUPS);
        own_full = __shfl_sync(~0u, seen.y, source * GROUPS + lane % GROUPS);
        live = 0;
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) live |= __shfl_sync(~0u, seen.x, source * GROUPS + i);
        base = 32 * (word - source);
        word -= source + 1;
    }
};
