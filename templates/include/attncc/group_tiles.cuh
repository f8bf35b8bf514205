#include "attncc/math.cuh"
#include "attncc/tiles.cuh"

// Tiles of keys as the warpgroups of a thread block see them, each of which has rows of its own. Lane i of the warp that walks
// tiles brings the range of keys of warpgroup i % WARPGROUPS.

/// A tile by its first slot, and what it is to each warpgroup: bit i of `live` and of `full`. None live: there is no tile.
struct GroupTile {
    int slot;
    unsigned live, full;

    __device__ __forceinline__ TileKind kind(int warpgroup) const {
        return (live >> warpgroup & 1) == 0 ? EMPTY : full >> warpgroup & 1 ? FULL : PARTIAL;
    }
};

/// What spans the ranges of all lanes; where nothing is full.
__device__ __forceinline__ TileRange span(const TileRange& own) {
    const bool some = own.begin < own.end;
    const int begin = __reduce_min_sync(~0u, some ? own.begin : 0x7fffffff);
    const int end = __reduce_max_sync(~0u, some ? own.end : 0);
    return {min(begin, end), 0, 0, end};
}

/// For which warpgroups it holds, as bits, by what the lane says of its own.
template <int WARPGROUPS>
__device__ __forceinline__ unsigned of_groups(bool holds) {
    return __ballot_sync(~0u, holds) & ((1u << WARPGROUPS) - 1);
}
