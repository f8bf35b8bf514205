#include "memory/layout.cuh"
#include "memory/pages.cuh"
#include "tiles/tiles.cuh"

// Tiles of K and V from a cache in pages. A warp looks up the rows that its own lanes copy, a lane for each row, once for K and V, and one
// tile ahead: nothing waits for the table but the first tile. There are no branches. `copy_async_of_place`: see kv_copies.cuh.

/// Which rows of KEYS keys a warp copies, in tiles of ROWS keys whose rows have up to CHUNKS chunks: STEP rows at once, by LANES lanes each.
template <int KEYS, int ROWS, int THREADS, int CHUNKS>
struct WarpRows {
    static constexpr int LANES = CHUNKS >= 8 ? 8 : CHUNKS >= 4 ? 4 : 2, AT_ONCE = 32 / LANES;
    static constexpr int STEP = THREADS / LANES < ROWS ? THREADS / LANES : ROWS;
    static constexpr int LOOK_UPS = ((KEYS + STEP - 1) / STEP * AT_ONCE + 31) / 32;  // of a lane

    /// The row that this lane looks up.
    static __device__ __forceinline__ int own(int look_up) {
        const unsigned index = threadIdx.x % 32 + 32 * look_up;
        return index / AT_ONCE * STEP + threadIdx.x / 32 * AT_ONCE + index % AT_ONCE;
    }

    /// Whether the warp copies rows at all: more than THREADS / LANES there are none for.
    static __device__ __forceinline__ bool some() { return THREADS / LANES <= STEP || threadIdx.x / LANES < STEP; }

    /// Where row `row` of the tile's STEP rows from a multiple of STEP on was looked up: number of the look-up times 32, and lane.
    static __device__ __forceinline__ unsigned place(int first) { return (unsigned)first / STEP * AT_ONCE + threadIdx.x % 32 / LANES; }
};

/// Where the rows of a tile are, and what was asked for of the next one. `table` has the sequence's pages, one entry at least.
template <class Params, class WarpRows>
struct PagePlaces {
    using Shares = WarpRows;
    static constexpr int LOOK_UPS = Shares::LOOK_UPS;

    const Params& params;
    const int* table;
    int kv_len;
    int first;                // key of the tile
    PagedKey keys[LOOK_UPS];  // page -1: there is no such key, or page
    int pages[LOOK_UPS];      // of the next tile

    __device__ __forceinline__ PagePlaces(const Params& params, const int* table, int kv_len) : params(params), table(table), kv_len(kv_len) {}

    /// Asks for the pages of the next tile.
    __device__ __forceinline__ void ask(const Tile& next) {
#pragma unroll
        for (int i = 0; i < LOOK_UPS; ++i) pages[i] = __ldg(table + entry(key(next, i)));
    }

    /// The tile that was asked for becomes the one that is loaded.
    __device__ __forceinline__ void take(const Tile& tile) {
        first = tile.kv_first;
#pragma unroll
        for (int i = 0; i < LOOK_UPS; ++i) {
            const bool exists = tile.kind != EMPTY && first + Shares::own(i) < kv_len && (unsigned)pages[i] < (unsigned)params.pages;
            const unsigned own = key(tile, i);
            keys[i] = {exists ? pages[i] : -1, (int)(own - entry(own) * params.page_rows)};
        }
    }

private:
    /// Beyond the last key the last one: no other entry of the table need be there.
    __device__ __forceinline__ unsigned key(const Tile& tile, int i) const { return max(min(tile.kv_first + Shares::own(i), kv_len - 1), 0); }

    __device__ __forceinline__ unsigned entry(unsigned key) const { return (unsigned)(key * params.page_magic >> params.page_shift); }
};

/// The rows of k, or of v, of one head. `pool` is row 0 of page 0; strides are in bytes.
struct PagedRows {
    const char* pool;
    long long page_stride, row_stride;

    /// Starts to load the tile that begins with key `first`; all THREADS threads take part. Rows that there aren't, and the bytes of a
    /// row from VALID_BYTES on, become zeros.
    template <class Tile, int VALID_BYTES, class Places>
    __device__ __forceinline__ void load(unsigned tile, const Places& places, int first) const {
        using Shares = typename Places::Shares;
        constexpr int LANES = Shares::LANES, LOOK_UPS = Shares::LOOK_UPS;
        long long own[LOOK_UPS];
#pragma unroll
        for (int i = 0; i < LOOK_UPS; ++i) {
            const PagedKey& key = places.keys[i];
            own[i] = key.page < 0 ? -1 : (unsigned)key.page * page_stride + (unsigned)key.row * row_stride;
        }
        const unsigned lane = threadIdx.x % LANES;
        const char* const column_of_lane = pool + lane * 16;
#pragma unroll
        for (int start = 0; start < Tile::ROWS; start += Shares::STEP) {
            const unsigned row = start + threadIdx.x / LANES, place = Shares::place(first - places.first + start);
            if (!Shares::some() || (start + Shares::STEP > Tile::ROWS && row >= Tile::ROWS)) break;
            const long long from = __shfl_sync(~0u, own[LOOK_UPS == 1 ? 0 : place / 32], place % 32);
            const char* const source = column_of_lane + from;
#pragma unroll
            for (int column = 0; column < Tile::CHUNKS; column += LANES) {
                const unsigned chunk = column + lane;
                if (column + LANES > Tile::CHUNKS && chunk >= Tile::CHUNKS) break;
                const bool padding = (column + LANES) * 16 > VALID_BYTES && chunk * 16 >= VALID_BYTES;
                copy_async_of_place(Tile::place(tile, row, chunk).address, source + column * 16, padding ? -1 : from);
            }
        }
    }
};

/// The tiles of a range, whose pages are asked for while those of the one before are loaded. The interface is that of LiveTiles.
template <class Tiles, class Kv>
struct PagedTiles {
    Tiles& tiles;
    Kv& kv;
    Tile next;

    __device__ __forceinline__ PagedTiles(Tiles& tiles, Kv& kv) : tiles(tiles), kv(kv), next(tiles.advance()) { kv.places.ask(next); }

    /// Its rows are those that kv loads until the next call.
    __device__ __forceinline__ Tile advance() {
        const Tile tile = next;
        kv.places.take(tile);
        next = tiles.advance();
        kv.places.ask(next);
        return tile;
    }
};
