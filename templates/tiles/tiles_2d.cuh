#include "common/math.cuh"

/// Where the rows (or keys) of a tile stand: a sequence is a 2-D grid of rows of WIDTH positions, which divides its length, and a
/// tile is a rectangle of it, COLUMNS wide. See tiles_1d.cuh for the other way.
///
/// The tiles of a sequence, laid out one after the other along bands of grid rows, are its slots: first those of the
/// first band. The last band may reach beyond the sequence.
template <int SIZE, int WIDTH, int COLUMNS>
struct TileOrder {
    static constexpr int BLOCK = SIZE, GRID_WIDTH = WIDTH, ROWS = SIZE / COLUMNS, ACROSS = WIDTH / COLUMNS, BAND = ROWS * WIDTH;
    static_assert(SIZE % COLUMNS == 0 && WIDTH % COLUMNS == 0, "tiles fill the grid");
    static_assert(8 % COLUMNS == 0, "offset(x + 8 * n) is offset(x) + offset(8 * n), on which fragments rely");

    /// Slots between which the positions from, or up to, a given one stand: whole bands.
    static __device__ __forceinline__ int begin(int position) { return position / BAND * BAND; }
    static __device__ __forceinline__ int end(int position) { return (position + BAND - 1) / BAND * BAND; }

    /// The first position of the tile that begins with a slot, and the last that it has in a sequence of this length: corners.
    static __device__ __forceinline__ int first(int slot) {
        const int tile = slot / BLOCK;
        return tile / ACROSS * BAND + tile % ACROSS * COLUMNS;
    }
    static __device__ __forceinline__ int last(int first, int length) {
        const int row = min(first / WIDTH + ROWS, length / WIDTH) - 1;
        return row * WIDTH + first % WIDTH + COLUMNS - 1;
    }

    /// Whether all of the tile lies in the sequence.
    static __device__ __forceinline__ bool whole(int first, int length) {
        return first / WIDTH + ROWS <= length / WIDTH;
    }

    /// The position of a slot of a tile, counted from the tile's first.
    static constexpr __device__ __forceinline__ int offset(int slot) { return slot / COLUMNS * WIDTH + slot % COLUMNS; }

    /// The position of a slot of the sequence.
    static __device__ __forceinline__ int position(int slot) { return first(slot) + offset(slot % BLOCK); }

    /// The row and the column on the grid of a slot of the tile that begins with `first`. They stay apart, so that compilers
    /// see what belongs to one of them alone.
    static __device__ __forceinline__ int row(int first, unsigned slot) { return (unsigned)first / WIDTH + slot / COLUMNS; }
    static __device__ __forceinline__ int column(int first, unsigned slot) { return (unsigned)first % WIDTH + slot % COLUMNS; }
};
