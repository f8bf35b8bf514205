#include "memory/barrier.cuh"
#include "scheduler/grid.cuh"
#include "tiles/group_tiles.cuh"
#include "common/math.cuh"
#include "memory/words.cuh"

/// What the producer tells a group of a block's rows, a warpgroup's or all, about a stage of keys.
struct TileInfo {
    Tile tile;    // EMPTY: no key of it matters to the rows
    bool loaded;  // false: no key at all matters to the block of queries, and nothing is loaded for it
    bool last;    // of a block of queries
    bool gap;     // the next one is EMPTY
    bool end;     // no tile at all: nothing is left to do
};

/// A block of queries that the producer is to load.
struct Plan {
    Work work;
    int kv_head;  // -1: nothing is left to do
};

/// What warps share, behind the tiles in shared memory: barriers, and what few work out for all. The planner hands
/// blocks of queries to the producer, with the keys that each group of rows looks at. Each stage of keys has tile info
/// for each group, so that consumers walk no tiles; with its Q, each warpgroup gets the work, so that they decode no
/// index. Two works are kept: one is needed again when the next Q has come. A warp's first lane reads tile info and
/// works, and arrives at their barriers, for all lanes. Who writes a part of tile info or of a plan arrives for itself.
template <int STAGES, int WARPGROUPS, int GROUPS>
struct Pipeline {
    static constexpr int QUERY_BARRIERS = 4 * STAGES, PLAN_BARRIERS = QUERY_BARRIERS + 2 * WARPGROUPS;
    static constexpr int SLOT_BYTES = 48;  // kernels/hopper_forward/facts.py counts so many
    static constexpr int PLAN_AT = (8 * (PLAN_BARRIERS + 2) + 15) / 16 * 16, RANGES_AT = PLAN_AT + SLOT_BYTES;
    static constexpr int WORKS_AT = RANGES_AT + 16 * GROUPS, TILE_INFO_AT = WORKS_AT + 2 * WARPGROUPS * SLOT_BYTES;
    static constexpr int BYTES = TILE_INFO_AT + 4 * STAGES * GROUPS;

    static_assert(sizeof(Plan) <= SLOT_BYTES && sizeof(TileRange) == 16, "they fill what is kept for them");

    unsigned base;

    __device__ __forceinline__ unsigned barrier(int number) const { return base + 8 * number; }
    __device__ __forceinline__ unsigned keys_full(int stage) const { return barrier(stage); }
    __device__ __forceinline__ unsigned keys_empty(int stage) const { return barrier(STAGES + stage); }
    __device__ __forceinline__ unsigned values_full(int stage) const { return barrier(2 * STAGES + stage); }
    __device__ __forceinline__ unsigned values_empty(int stage) const { return barrier(3 * STAGES + stage); }
    __device__ __forceinline__ unsigned queries_full(int warpgroup) const { return barrier(QUERY_BARRIERS + warpgroup); }
    __device__ __forceinline__ unsigned queries_empty(int warpgroup) const {
        return barrier(QUERY_BARRIERS + WARPGROUPS + warpgroup);
    }
    __device__ __forceinline__ unsigned plan_full() const { return barrier(PLAN_BARRIERS); }
    __device__ __forceinline__ unsigned plan_empty() const { return barrier(PLAN_BARRIERS + 1); }

    /// `leaving`: how many warps arrive when they have left a stage.
    __device__ __forceinline__ void init(int leaving) const {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(keys_full(stage), GROUPS + 1);
            barrier_init(keys_empty(stage), leaving);
            barrier_init(values_full(stage), 1);
            barrier_init(values_empty(stage), leaving);
        }
        for (int warpgroup = 0; warpgroup < WARPGROUPS; ++warpgroup) {
            barrier_init(queries_full(warpgroup), 1);
            barrier_init(queries_empty(warpgroup), 4);
        }
        barrier_init(plan_full(), 32);
        barrier_init(plan_empty(), 2 * 32);
        barrier_init_done();
    }

    /// By one lane for each group, before it arrives at the stage's full barrier. The lane that loads arrives as well.
    __device__ __forceinline__ void write(int stage, int group, const TileInfo& info) const {
        const int kind = info.loaded ? (int)info.tile.kind : NONE;
        const int flags = kind | (info.last ? LAST : info.gap ? GAP : 0);
        store_word(tile_info_at(stage, group), info.end ? NONE : info.tile.kv_first | flags);
    }

    /// By a whole warp, as `read_work`; `address` is its `tile_info_at`.
    __device__ __forceinline__ TileInfo read(unsigned address) const {
        const int word = take_word(address), flags = word & FRAGMENT_KEYS - 1;
        return {{word & -FRAGMENT_KEYS, (TileKind)(flags & NONE)}, (flags & NONE) != NONE, (flags & LAST) != 0,
                (flags & GAP) != 0, flags == NONE};
    }

    __device__ __forceinline__ unsigned tile_info_at(int stage, int group) const {
        return base + TILE_INFO_AT + 4 * (stage * GROUPS + group);
    }

    /// By one lane, before it arrives at the warpgroup's full barrier. `turn` is 0 and 1 by turns.
    __device__ __forceinline__ void write_work(int warpgroup, unsigned turn, const Plan& plan) const {
        put(work_at(warpgroup, turn), plan);
    }

    __device__ __forceinline__ Plan read_plan_of(int warpgroup, unsigned turn) const { return take<Plan>(work_at(warpgroup, turn)); }
    __device__ __forceinline__ Work read_work(int warpgroup, unsigned turn) const { return take<Work>(work_at(warpgroup, turn)); }

    /// By a whole warp, which arrives at the full barrier next; lane i brings the range of group i % GROUPS.
    __device__ __forceinline__ void write_plan(const Plan& plan, const TileRange& range) const {
        const int lane = threadIdx.x % 32;
        if (lane == 0) put(base + PLAN_AT, plan);
        if (lane < GROUPS) put(base + RANGES_AT + 16 * lane, range);
    }

    /// By a whole warp. Lane i gets the range of group i % GROUPS.
    __device__ __forceinline__ Plan read_plan(TileRange& range) const {
        unsigned words[4];
        load_words(base + RANGES_AT + threadIdx.x % 32 % GROUPS * 16, words);
        memcpy(&range, words, sizeof(range));
        return take<Plan>(base + PLAN_AT);
    }

protected:
    static __device__ __forceinline__ int take_word(unsigned address) {
        return uniform(threadIdx.x % 32 == 0 ? load_word(address) : 0);
    }

    // A tile begins at a slot (see tiles_1d.cuh) that is a multiple of 16: the bits below say the rest.
    static constexpr int FRAGMENT_KEYS = 16, NONE = 3, GAP = 4, LAST = 8;

    __device__ __forceinline__ unsigned work_at(int warpgroup, unsigned turn) const {
        return base + WORKS_AT + (2 * warpgroup + turn) * SLOT_BYTES;
    }

    template <class T>
    static __device__ __forceinline__ void put(unsigned address, const T& x) {
        unsigned words[(sizeof(T) + 15) / 16][4] = {};
        memcpy(words, &x, sizeof(T));
#pragma unroll
        for (int i = 0; i < sizeof(words) / 16; ++i) store_words(address + 16 * i, words[i]);
    }

    template <class T>
    static __device__ __forceinline__ T take(unsigned address) {
        unsigned words[(sizeof(T) + 15) / 16][4] = {};
        if (threadIdx.x % 32 == 0)
#pragma unroll
            for (int i = 0; i < sizeof(words) / 16; ++i) load_words(address + 16 * i, words[i]);
        T x;
        memcpy(&x, words, sizeof(T));
        return uniform_struct(x);
    }
};
