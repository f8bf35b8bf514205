#include "memory/barrier.cuh"
#include "scheduler/kv_blocks.cuh"
#include "common/math.cuh"
#include "tiles/query_tiles.cuh"

/// What the producer tells of a stage of queries.
struct QueryTileInfo {
    int place;  // of the tile's dQ, see `FirstStores`
    QueryTile tile;
};

/// What is to be done with a stage of keys: nothing any more, or a gradient to be stored, with DIFFERENTIATE after tiles of
/// queries. Without it no query keeps any of the keys, and nothing is loaded. VALUES_PARITY: that of the values' barrier;
/// KEYS_PARITY: that of the keys' own.
enum Order { END = 0, VALUES_PARITY = 1, STORE = 2, DIFFERENTIATE = 4, KEYS_PARITY = 8 };

/// The barriers and tile info of the backward pass in shared memory. Only the producer walks tiles. KEY_SHARES: of a block of keys, one
/// for each consumer; of one that both own, one tells the other what dS is a multiple of. KEY_BARRIERS: those that belong to keys besides,
/// and RANGE_STAGES: see who derives from it (blocks_late.cuh, blocks_ahead.cuh).
template <int KEY_STAGES, int STAGES, int KEY_SHARES, int KEY_BARRIERS, int RANGE_STAGES>
struct BackwardPipeline {
    static constexpr int WORK_BYTES = 32 + 16;
    static constexpr int OF_KEYS = 2 * KEY_STAGES, QUERIES = OF_KEYS + KEY_BARRIERS, DOUTS = QUERIES + 2 * STAGES;
    static constexpr int DSCORES = DOUTS + 2 * STAGES, DSCORE_FACTORS = DSCORES + 2 * STAGES;
    static constexpr int OTHERS = DSCORE_FACTORS + (KEY_SHARES == 1 ? STAGES : 0);
    static constexpr int SCHEDULED = OTHERS + (IN_CLUSTER ? STAGES : 0), BARRIERS = SCHEDULED + (IN_CLUSTER ? 2 : 0);
    static constexpr int WORK_AT = (8 * BARRIERS + 15) / 16 * 16, QUERY_NOTES_AT = WORK_AT + WORK_BYTES * KEY_STAGES;
    static constexpr int RANGES_AT = QUERY_NOTES_AT + 16 * 2 * STAGES, ASKED_AT = RANGES_AT + 16 * KEY_SHARES * RANGE_STAGES;
    static constexpr int SCHEDULED_AT = ASKED_AT + 16, BYTES = SCHEDULED_AT + (IN_CLUSTER ? 16 : 0), NO_STAGE = -1;
    static constexpr int CONSUMER_WARPS = 8, DQ_CONSUMER_WARPS = 4;  // warps that own keys, warps that add to dQ
    static constexpr int DSCORES_WARPS = 4 * KEY_SHARES;    // warps that make dS
    static constexpr int DSCORES_ARRIVALS = KEY_SHARES == 1 ? 32 * DSCORES_WARPS : DSCORES_WARPS;

    unsigned base;

    __device__ __forceinline__ unsigned keys_full(int stage) const { return base + 8 * stage; }
    __device__ __forceinline__ unsigned keys_empty(int stage) const { return base + 8 * (KEY_STAGES + stage); }
    __device__ __forceinline__ unsigned queries_full(int stage) const { return base + 8 * (QUERIES + stage); }
    __device__ __forceinline__ unsigned queries_empty(int stage) const { return base + 8 * (QUERIES + STAGES + stage); }
    __device__ __forceinline__ unsigned douts_full(int stage) const { return base + 8 * (DOUTS + stage); }
    __device__ __forceinline__ unsigned douts_empty(int stage) const { return base + 8 * (DOUTS + STAGES + stage); }
    __device__ __forceinline__ unsigned dscores_full(int stage) const { return base + 8 * (DSCORES + stage); }
    __device__ __forceinline__ unsigned dscores_empty(int stage) const { return base + 8 * (DSCORES + STAGES + stage); }

    __device__ __forceinline__ unsigned dscore_factors_full(int stage) const { return base + 8 * (DSCORE_FACTORS + stage); }

    /// dS of the other block of a pair.
    __device__ __forceinline__ unsigned others_full(int stage) const { return base + 8 * (OTHERS + stage); }

    // The block of keys that the first block of a cluster has got for both, as the second is told.
    __device__ __forceinline__ unsigned scheduled_full() const { return base + 8 * SCHEDULED; }
    __device__ __forceinline__ unsigned scheduled_empty() const { return base + 8 * (SCHEDULED + 1); }
    __device__ __forceinline__ unsigned scheduled_at() const { return base + SCHEDULED_AT; }
    __device__ __forceinline__ int scheduled() const {
        int index, unused;
        take_pair(scheduled_at(), index, unused);
        return index;
    }

    /// `writers`: who say what a stage of keys is about.
    __device__ __forceinline__ void init_keys(int writers) const {
        for (int stage = 0; stage < KEY_STAGES; ++stage) {
            barrier_init(keys_full(stage), writers);
            barrier_init(keys_empty(stage), 32 * (CONSUMER_WARPS + DQ_CONSUMER_WARPS));
        }
    }

    /// `blocks`: the warps of how many leave a stage before it is written to again.
    __device__ __forceinline__ void init_queries(int blocks) const {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(queries_full(stage), 1);
            barrier_init(queries_empty(stage), CONSUMER_WARPS * blocks);
            barrier_init(douts_full(stage), 1);
            barrier_init(douts_empty(stage), CONSUMER_WARPS * blocks);
            barrier_init(dscores_full(stage), DSCORES_ARRIVALS);
            barrier_init(dscores_empty(stage), DQ_CONSUMER_WARPS * blocks);
            if (IN_CLUSTER) barrier_init(others_full(stage), 1);
            if (KEY_SHARES == 1) barrier_init(dscore_factors_full(stage), 32 * (CONSUMER_WARPS - DSCORES_WARPS));
        }
        if (IN_CLUSTER) {
            barrier_init(scheduled_full(), 1);
            barrier_init(scheduled_empty(), 1);
        }
        barrier_init_done();
    }

    /// What a stage of keys is about, and what is to be done with it. The first is not kept in registers: who needs it reads it.
    __device__ __forceinline__ void write(int stage, const KeyWork& work) const {
        const unsigned address = base + WORK_AT + WORK_BYTES * stage;
        put_four(address, work.sequence, work.batch_index, work.kv_head, work.kv_block);
        put_four(address + 16, work.q_start, work.q_len, work.kv_start, work.kv_len);
    }

    __device__ __forceinline__ void write_order(int stage, int order) const {
        put_pair(base + WORK_AT + WORK_BYTES * stage + 32, order, 0);
    }

    __device__ __forceinline__ KeyWork work(int stage) const {
        const unsigned address = base + WORK_AT + WORK_BYTES * stage;
        KeyWork work;
        work.part = 0;
        take_four(address, work.sequence, work.batch_index, work.kv_head, work.kv_block);
        take_four(address + 16, work.q_start, work.q_len, work.kv_start, work.kv_len);
        return work;
    }

    __device__ __forceinline__ int order(int stage) const {
        int order, unused;
        take_pair(base + WORK_AT + WORK_BYTES * stage + 32, order, unused);
        return order;
    }

    // What a consumer's keys look at: one warp asks for it by stage and head, a warp for each consumer answers. Between the question and the
    // answers all of them wait for each other.
    static __device__ __forceinline__ void wait_for_ranges() { named_wait(4, 32 * (1 + KEY_SHARES)); }

    __device__ __forceinline__ void ask(int stage, int head) const { put_pair(base + ASKED_AT, stage, head); }
    __device__ __forceinline__ void asked(int& stage, int& head) const { take_pair(base + ASKED_AT, stage, head); }

    __device__ __forceinline__ void write(int stage, int share, const QueryRange& range) const {
        put_four(range_at(stage, share), range.begin, range.full_begin, range.full_end, range.end);
    }

    __device__ __forceinline__ QueryRange range(int stage, int share) const {
        QueryRange range;
        take_four(range_at(stage, share), range.begin, range.full_begin, range.full_end, range.end);
        return range;
    }

    // A stage of queries has tile info twice, for its even and odd turns: who adds to dQ reads one when the next may be there already.
    __device__ __forceinline__ void write(int stage, unsigned turn, const QueryTileInfo& info) const {
        const unsigned address = query_tile_info_at(stage, turn);
        put_pair(address, info.place, info.tile.word);
        put_pair(address + 8, info.tile.head, info.tile.ends_head);
    }

    /// By a whole warp. The lane that reads is the one that `warp_arrive` lets arrive at the stage's empty barrier.
    __device__ __forceinline__ QueryTileInfo query_tile_info(int stage, unsigned turn) const {
        QueryTileInfo info;
        take_pair(query_tile_info_at(stage, turn), info.place, info.tile.word);
        return info;
    }

    /// The head of a tile, for those who need it.
    __device__ __forceinline__ int head(int stage, unsigned turn) const {
        int head, unused;
        take_pair(query_tile_info_at(stage, turn) + 8, head, unused);
        return head;
    }

    /// Whether the tile is the last of its head.
    __device__ __forceinline__ bool ends_head(int stage, unsigned turn) const {
        int head, ends;
        take_pair(query_tile_info_at(stage, turn) + 8, head, ends);
        return ends;
    }

protected:
    __device__ __forceinline__ unsigned range_at(int stage, int share) const {
        return base + RANGES_AT + 16 * (RANGE_STAGES > 1 ? stage * KEY_SHARES + share : share);
    }

    __device__ __forceinline__ unsigned query_tile_info_at(int stage, unsigned turn) const {
        return base + QUERY_NOTES_AT + 16 * (stage + turn * STAGES);
    }

    static __device__ __forceinline__ void put_pair(unsigned address, int x, int y) {
        asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
    }

    static __device__ __forceinline__ void put_four(unsigned address, int x, int y, int z, int w) {
        asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
    }

    static __device__ __forceinline__ void take_four(unsigned address, int& x, int& y, int& z, int& w) {
        asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(address) : "memory");
    }

    static __device__ __forceinline__ void take_pair(unsigned address, int& x, int& y) {
        x = y = 0;
        if (threadIdx.x % 32 == 0)
            asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(address) : "memory");
        x = uniform(x);
        y = uniform(y);
    }
};
