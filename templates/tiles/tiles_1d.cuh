#include "common/math.cuh"

/// Where the rows (or keys) of a tile stand: SIZE positions in a row (1-D). The tiles of a sequence, laid out one after
/// the other, are its slots; here slots are positions. See tiles_2d.cuh for tiles of a grid.
template <int SIZE, int WIDTH, int COLUMNS>
struct TileOrder {
    static constexpr int BLOCK = SIZE;

    /// Slots between which the positions from, or up to, a given one stand.
    static __device__ __forceinline__ int begin(int position) { return position; }
    static __device__ __forceinline__ int end(int position) { return position; }

    /// The first position of the tile that begins with a slot, and the last that it has in a sequence of this length.
    static __device__ __forceinline__ int first(int slot) { return slot; }
    static __device__ __forceinline__ int last(int first, int length) { return min(first + BLOCK, length) - 1; }

    /// Whether all of the tile lies in the sequence.
    static __device__ __forceinline__ bool whole(int first, int length) { return first + BLOCK <= length; }

    /// The position of a slot of a tile, counted from the tile's first.
    static constexpr __device__ __forceinline__ int offset(int slot) { return slot; }

    /// The position of a slot of the sequence.
    static __device__ __forceinline__ int position(int slot) { return slot; }
};
