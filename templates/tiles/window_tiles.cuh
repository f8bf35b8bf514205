#include "tiles/group_tiles.cuh"

/// The tiles of a window (windows.cuh) in descending order: each group of rows looks at all in its range.
template <class Order, int GROUPS>
struct WindowTiles {
    const Order& order;
    const TileRange& own;  // of the lane
    const int begin;       // the least slot of all lanes
    int next;              // the tile below the one that was found

    /// `all` spans the ranges of all lanes.
    __device__ __forceinline__ WindowTiles(const Order& order, const TileRange& own, const TileRange& all)
        : order(order), own(own), begin(all.begin), next(order.before(all.end)) {}

    __device__ __forceinline__ GroupTile advance() {
        while (next >= begin) {
            const int slot = next;
            next = order.before(slot);
            const unsigned live = of_groups<GROUPS>(own.kind_at<Order::BLOCK>(slot) != EMPTY);
            if (live != 0) return {slot, live, 0};
        }
        return {};
    }
};
