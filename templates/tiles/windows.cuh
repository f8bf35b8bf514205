#include "mask/key_bits.cuh"
#include "common/math.cuh"

/// Of a window's tile of ROWS rows of COLUMNS (below), those keys of the lane that are in its first rows. How many they are stands
/// in a table, a byte for each number of rows: an odd one may end amid a fragment, whose first half two lanes in four hold.
template <int COLUMNS, int ROWS>
__device__ __forceinline__ unsigned rows_below(int rows) {
    static_assert(COLUMNS % 4 == 0 && ROWS < 8, "halves of fragments, and two words of bytes");
    const int half = threadIdx.x % 4 < 2 ? 4 : 0;
    unsigned counts[2] = {};
#pragma unroll
    for (int i = 1; i <= ROWS; ++i) counts[i / 4] |= 2 * ((COLUMNS * i + half) / 8) << 8 * (i % 4);
    return __funnelshift_lc(~0u, 0u, __byte_perm(counts[0], counts[1], min(max(rows, 0), ROWS)));
}

/// And those in its first columns. As many rows as fill fragments repeat.
template <int COLUMNS, int ROWS>
__device__ __forceinline__ unsigned columns_below(int columns) {
    static_assert(COLUMNS % 4 == 0, "one row or two fill fragments");
    constexpr int REPEATED = COLUMNS % 8 == 0 ? 1 : 2;
    const int place = threadIdx.x % 4 * 2, below = min(max(columns, 0), COLUMNS) - place;
    unsigned bits = bits_below(below);
    if (REPEATED == 2) bits |= bits_below(COLUMNS + below) & ~bits_below(COLUMNS - place);
#pragma unroll
    for (int rows = REPEATED; rows < ROWS; rows *= 2) bits |= bits << rows * COLUMNS / 4;
    return bits;
}

/// Where the keys of a tile stand: row after row of a window of a grid (see tiles_2d.cuh) that begins where what a block of
/// queries looks at does. A tile is ROWS rows of COLUMNS. The window is wider than a tile, and then has several beside each
/// other, only where the mask reaches further than its sample did. Slots are counted from the window's first key, tile after
/// tile, as if each row of tiles had the SIDES that the grid has room for: so where a slot stands takes no division.
template <int SIZE, int WIDTH, int TILE_COLUMNS>
struct WindowOrder {
    static constexpr int BLOCK = SIZE, GRID_WIDTH = WIDTH, COLUMNS = TILE_COLUMNS, ROWS = SIZE / COLUMNS;
    static constexpr int SIDES = (WIDTH + COLUMNS - 1) / COLUMNS, BAND = SIDES * BLOCK;
    static_assert(SIZE % COLUMNS == 0 && COLUMNS <= WIDTH, "tiles are rows that fit the grid");

    int row, column;  // of the grid, where the window begins
    int across;       // tiles beside each other, at most SIDES

    /// That of keys from one position, and one column, up to others.
    static __device__ __forceinline__ WindowOrder around(int kv_begin, int column_begin, int column_end) {
        const int across = max((column_end - column_begin + COLUMNS - 1) / COLUMNS, 1);
        return {kv_begin / WIDTH, across == 1 ? min(column_begin, WIDTH - COLUMNS) : column_begin, across};
    }

    /// Slots between which the positions from, or up to, a given one stand: whole rows of tiles.
    __device__ __forceinline__ int begin(int position) const { return max(position / WIDTH - row, 0) / ROWS * BAND; }
    __device__ __forceinline__ int end(int position) const {
        const int rows = max((position + WIDTH - 1) / WIDTH - row, 0);
        return (rows + ROWS - 1) / ROWS * BAND;
    }

    /// The slot that the last tile before a slot begins with.
    __device__ __forceinline__ int before(int slot) const {
        const int next = slot - BLOCK;
        return next - max(next % BAND / BLOCK - (across - 1), 0) * BLOCK;
    }

    /// The first position of the tile that begins with a slot.
    __device__ __forceinline__ int first(int slot) const {
        return (row + slot / BAND * ROWS) * WIDTH + column + slot % BAND / BLOCK * COLUMNS;
    }

    /// The position of a slot of a tile, counted from the tile's first.
    static constexpr __device__ __forceinline__ int offset(int slot) { return slot / COLUMNS * WIDTH + slot % COLUMNS; }
};
