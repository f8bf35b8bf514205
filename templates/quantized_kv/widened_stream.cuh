#include "quantized_kv/widened_tile.cuh"

/// The tiles of a KvStream (kv_stream.cuh) of 8 bits, each of 16 once it is in hand.
template <class Stream, class Tiles>
struct WidenedStream : Stream {
    Tiles tile_in_hand;

    template <class AnyRows, class AnyTiles>
    __device__ __forceinline__ WidenedStream(const AnyRows& rows, AnyTiles& tiles, unsigned buffers)
        : Stream(rows, tiles, buffers + Tiles::BYTES), tile_in_hand{buffers, rows.value_mantissa} {}

    __device__ __forceinline__ unsigned keys() const { return tile_in_hand.keys(0); }
    __device__ __forceinline__ unsigned values() const { return tile_in_hand.values(0); }

    __device__ __forceinline__ void wait_keys() {
        Stream::wait_keys();
        tile_in_hand.take_keys(0, Stream::keys());
        if (Stream::AHEAD > 0) tile_in_hand.take_values(0, Stream::values());
        __syncthreads();
    }

    __device__ __forceinline__ void wait_values() {
        if (Stream::AHEAD > 0) return;
        Stream::wait_values();
        tile_in_hand.take_values(0, Stream::values());
        __syncthreads();
    }
};
