#include "memory/barrier.cuh"
#include "memory/words.cuh"
#include "tiles/tiles.cuh"
#include "common/math.cuh"

/// Makes room for another barrier, or for what is no barrier.
__device__ __forceinline__ void barrier_end(unsigned barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// What is loaded of a tile at once, and left at once: the columns of each half of V; K, or where V is its first columns, those
/// behind them.
enum LoadedPart { LEFT, RIGHT, KEYS, PARTS };

/// What the warp that loads tells a warpgroup about the tile that it is to make S of.
struct TileInfo {
    Tile tile;
    bool exists, partner;  // this tile, and the other of the pair
    bool last;             // of all pairs
};

/// Barriers of a ring of tiles, and tile info. Stages have a full and an empty barrier for each part. They live as long as one part
/// of an item: so tiles that don't exist, of the last pair, need no turns.
template <int STAGES>
struct WidePipeline {
    static constexpr int BARRIERS = 2 * PARTS * STAGES, BYTES = (8 * BARRIERS + 4 * STAGES + 15) / 16 * 16;

    unsigned base;

    __device__ __forceinline__ unsigned full(int part, int stage) const { return base + 8 * (part * STAGES + stage); }
    __device__ __forceinline__ unsigned empty(int part, int stage) const { return base + 8 * ((PARTS + part) * STAGES + stage); }

    /// By one thread. Four warps leave a part together, of each thread block of a cluster.
    __device__ __forceinline__ void init() const {
#pragma unroll 1
        for (int i = 0; i < BARRIERS; ++i) barrier_init(base + 8 * i, i < BARRIERS / 2 ? 1 : 4 * Cluster::blocks());
        barrier_init_done();
    }

    /// By the same thread, when all threads have left the barriers.
    __device__ __forceinline__ void end() const {
#pragma unroll 1
        for (int i = 0; i < BARRIERS; ++i) barrier_end(base + 8 * i);
    }

    /// By one lane, before it arrives at the full barrier of the stage's keys.
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
        return uniform(threadIdx.x % 32 == 0 ? (int)load_word(address) : 0);
    }

    __device__ __forceinline__ unsigned info_at(int stage) const { return base + 8 * BARRIERS + 4 * stage; }
};
