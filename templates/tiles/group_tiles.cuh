#include "common/math.cuh"
#include "tiles/tiles.cuh"

// Tiles of keys as groups of a block's rows see them: those of each warpgroup, or all together. Of the warp that walks
// tiles, lane i brings the range of keys of group i % GROUPS.

/// A tile by its first slot, and what it is to each group: bit i of `live` and of `full`. None live: there is no tile.
struct GroupTile {
    int slot;
    unsigned live, full;

    __device__ __forceinline__ TileKind kind(int group) const {
        return (live >> group & 1) == 0 ? EMPTY : full >> group & 1 ? FULL : PARTIAL;
    }
};

/// What spans the ranges of all lanes; where nothing is full.
__device__ __forceinline__ TileRange span(const TileRange& own) {
    const bool some = own.begin < own.end;
    const int begin = __reduce_min_sync(~0u, some ? own.begin : 0x7fffffff);
    const int end = __reduce_max_sync(~0u, some ? own.end : 0);
    return {min(begin, end), 0, 0, end};
}

/// For which groups it holds, as bits, by what the lane says of its own.
template <int GROUPS>
__device__ __forceinline__ unsigned of_groups(bool holds) {
    return __ballot_sync(~0u, holds) & ((1u << GROUPS) - 1);
}
