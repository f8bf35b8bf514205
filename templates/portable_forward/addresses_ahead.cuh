#include "mma/lanes.cuh"
#include "common/math.cuh"

/// Where a lane reads Q, K and V: for Q and K found for a tile while the one before is worked on, so that nothing stands
/// between the tile's arrival and its first fragments. See addresses_recomputed.cuh for the other way.
template <class Tile, int ROWS>
struct FragmentAddresses {
    typename Tile::Lane of_query, of_key;  // the second counted from the tile's address

    /// Found here and now, of `queries`, ROWS of them a warp. All parts are pinned, though not all are used: the compiler
    /// finds registers then.
    __device__ __forceinline__ void take(unsigned queries) {
        const unsigned thread = thread_index(), lane = thread % 32;
        of_query = pinned(query_lane<Tile>(queries, thread / 32 * ROWS, lane));
        of_key = pinned(key_lane<Tile>(0, lane));
    }

    template <class QTile>
    __device__ __forceinline__ typename QTile::Lane query(unsigned, int) const {
        return of_query;
    }

    template <class KTile>
    __device__ __forceinline__ typename KTile::Lane key(unsigned keys) const {
        return {keys + of_key.wide, keys + of_key.half, keys + of_key.quarter};
    }

    __device__ __forceinline__ int values() const { return lane_of_values(); }

private:
    static __device__ __forceinline__ typename Tile::Lane pinned(const typename Tile::Lane& lane) {
        return {(unsigned)opaque(lane.wide), (unsigned)opaque(lane.half), (unsigned)opaque(lane.quarter)};
    }
};
