#include "tiles/tiles.cuh"

/// The keys that a block's rows look at, where its warps don't tell their own from others'. See warp_ranges.cuh.
template <int WARPS>
struct Ranges {
    TileRange range;

    __device__ __forceinline__ explicit Ranges(const TileRange& range) : range(range) {}

    __device__ __forceinline__ TileRange all() const { return range; }

    template <int BLOCK>
    __device__ __forceinline__ Tile own(const Tile& tile, unsigned) const {
        return tile;
    }
};
