#include "quantized_kv/widened_tile.cuh"

/// The tiles of a KvRing (kv_ring.cuh) of 8 bits, in CHUNKS chunks, each of 16 once it is in hand.
template <class Ring, class Tiles, int CHUNKS>
struct WidenedRing : Ring {
    Tiles tile_in_hand;

    template <class AnyRows, class AnyTiles, class LoadBeside>
    __device__ __forceinline__ WidenedRing(const AnyRows& rows, AnyTiles& tiles, unsigned buffers, LoadBeside load_beside)
        : Ring(rows, tiles, buffers + Tiles::BYTES, load_beside), tile_in_hand{buffers, rows.value_mantissa} {}

    __device__ __forceinline__ unsigned keys(int chunk) const { return tile_in_hand.keys(chunk); }
    __device__ __forceinline__ unsigned values(int chunk) const { return tile_in_hand.values(chunk); }

    __device__ __forceinline__ void wait() {
        Ring::wait();
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            tile_in_hand.take_keys(chunk, Ring::keys(chunk));
            tile_in_hand.take_values(chunk, Ring::values(chunk));
        }
        __syncthreads();
    }
};
