#include "tiles/group_tiles.cuh"

/// All tiles of a range in descending order, where nothing is masked and a block's rows are one group: they needn't be
/// classified.
template <class Order>
struct CountedTiles {
    static constexpr int BLOCK_KV = Order::BLOCK;

    const int begin, kv_len;
    int next;  // the first slot of the tile below the one that was found

    __device__ __forceinline__ CountedTiles(const TileRange& range, int kv_len)
        : begin(range.begin), kv_len(kv_len),
          next(range.begin < range.end ? (range.end - 1) / BLOCK_KV * BLOCK_KV : -BLOCK_KV) {}

    __device__ __forceinline__ GroupTile advance() {
        const int slot = next;
        if (slot < 0 || slot + BLOCK_KV <= begin) return {};
        next -= BLOCK_KV;
        return {slot, 1, Order::whole(Order::first(slot), kv_len)};
    }
};
