#include "memory/barrier.cuh"
#include "memory/words.cuh"
#include "tiles/tiles.cuh"
#include "common/math.cuh"

/// Makes room for another barrier, or for what is no barrier.
__device__ __forceinline__ void barrier_end(unsigned barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// What is left of a tile at once, and loaded again at once: the columns of each half of V; K, or where V is its first columns,
/// those behind them.
enum TilePart { LEFT, RIGHT, KEYS, PARTS };

/// What the warp that loads tells a warpgroup about the tile that it is to make S of.
struct TileInfo {
    Tile tile;
    bool exists, partner;  // this tile, and the other of the pair
    bool last;             // of all pairs
};

/// Barriers of a ring of tiles, and tile info. A stage has full barriers for each of the PANELS of K, for the halves of V, and for tile
/// info; and an empty barrier for each part. They live as long as one part of an item: so tiles that don't exist, of the last pair,
/// need no turns.
template <int STAGES, int PANELS>
struct WidePipeline {
    static constexpr int FULL = (PANELS + 3) * STAGES, BARRIERS = FULL + PARTS * STAGES;
    static constexpr int BYTES = (8 * BARRIERS + 4 * STAGES + 15) / 16 * 16;
    static constexpr int NEXT_PANEL = 8 * STAGES;  // bytes from the full barrier of a panel to that of the next

    unsigned base;

    __device__ __forceinline__ unsigned full(int panel, int stage) const { return base + NEXT_PANEL * panel + 8 * stage; }
    /// Where V is the first columns of K, it may have a panel of zeros more than K has, in its right half: there it comes.
    __device__ __forceinline__ unsigned half_full(int half, int stage) const { return full(PANELS + 1 - half, stage); }
    __device__ __forceinline__ unsigned info_full(int stage) const { return full(PANELS + 2, stage); }
    __device__ __forceinline__ unsigned empty(int part, int stage) const { return base + 8 * (FULL + part * STAGES + stage); }

    /// By all threads, before they meet. Four warps leave a part together.
    __device__ __forceinline__ void init() const {
        const int own = thread_index();
        if (own < BARRIERS) barrier_init(base + 8 * own, own < FULL ? 1 : 4);
        barrier_init_done();
    }

    /// By the same threads, when all have left the barriers.
    __device__ __forceinline__ void end() const {
        const int own = thread_index();
        if (own < BARRIERS) barrier_end(base + 8 * own);
    }

    /// By a whole warp, as warp_arrive: which lane is the first isn't kept in a register.
    __device__ __forceinline__ void leave(int part, int stage) const {
        if ((unsigned)thread_index() % 32 == 0) barrier_arrive(empty(part, stage));
    }

    /// By one lane, before it arrives at that barrier.
    __device__ __forceinline__ void write(int stage, const Tile& tile, bool partner, bool last) const {
        store_word(info_at(stage), tile.kv_first | tile.kind | partner * PARTNER | last * LAST);
    }

    /// By a whole warp; its first lane alone reads, which arrives for all.
    __device__ __forceinline__ TileInfo read(int stage) const {
        const int word = take_word(info_at(stage)), kind = word & KIND;
        return {{word & ~FLAGS, (TileKind)kind}, kind != EMPTY, (word & PARTNER) != 0, (word & LAST) != 0};
    }

private:
    // A tile begins at a multiple of 64: the bits below say the rest.
    static constexpr int KIND = 3, PARTNER = 4, LAST = 8, FLAGS = 63;

    static __device__ __forceinline__ int take_word(unsigned address) {
        return uniform((unsigned)thread_index() % 32 == 0 ? (int)load_word(address) : 0);
    }

    __device__ __forceinline__ unsigned info_at(int stage) const { return base + 8 * BARRIERS + 4 * stage; }
};
