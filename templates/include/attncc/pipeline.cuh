#include "attncc/barrier.cuh"
#include "attncc/math.cuh"
#include "attncc/tiles.cuh"

/// What the producer tells the consumers about a stage of keys.
struct Note {
    int block;  // the block of queries to work on, -1: none is left
    Tile tile;  // EMPTY: no key matters to the block; nothing is loaded for it
    bool last;  // of the block
};

/// The barriers and notes that producer and consumers share, behind the tiles in shared memory. Each stage of keys bears a
/// note, so that only the producer walks tiles.
template <int STAGES, int WARPGROUPS>
struct Pipeline {
    static constexpr int QUERY_BARRIERS = 4 * STAGES, NOTES = QUERY_BARRIERS + 2 * WARPGROUPS;
    static constexpr int NOTES_AT = (8 * NOTES + 15) / 16 * 16, BYTES = NOTES_AT + 16 * STAGES;

    unsigned base;

    __device__ __forceinline__ unsigned keys_full(int stage) const { return base + 8 * stage; }
    __device__ __forceinline__ unsigned keys_empty(int stage) const { return base + 8 * (STAGES + stage); }
    __device__ __forceinline__ unsigned values_full(int stage) const { return base + 8 * (2 * STAGES + stage); }
    __device__ __forceinline__ unsigned values_empty(int stage) const { return base + 8 * (3 * STAGES + stage); }
    __device__ __forceinline__ unsigned queries_full(int warpgroup) const {
        return base + 8 * (QUERY_BARRIERS + warpgroup);
    }
    __device__ __forceinline__ unsigned queries_empty(int warpgroup) const {
        return base + 8 * (QUERY_BARRIERS + WARPGROUPS + warpgroup);
    }

    __device__ __forceinline__ void init() const {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(keys_full(stage), 1);
            barrier_init(keys_empty(stage), 4 * WARPGROUPS);
            barrier_init(values_full(stage), 1);
            barrier_init(values_empty(stage), 4 * WARPGROUPS);
        }
        for (int warpgroup = 0; warpgroup < WARPGROUPS; ++warpgroup) {
            barrier_init(queries_full(warpgroup), 1);
            barrier_init(queries_empty(warpgroup), 4);
        }
        barrier_init_done();
    }

    __device__ __forceinline__ void write(int stage, const Note& note) const {
        asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(base + NOTES_AT + 16 * stage), "r"(note.block),
                     "r"(note.tile.kv_first), "r"((int)note.tile.kind + note.last * LAST), "r"(0)
                     : "memory");
    }

    __device__ __forceinline__ Note read(int stage) const {
        int block, kv_first, flags, unused;
        asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(block), "=r"(kv_first), "=r"(flags), "=r"(unused)
                     : "r"(base + NOTES_AT + 16 * stage)
                     : "memory");
        flags = uniform(flags);
        return {uniform(block), {uniform(kv_first), (TileKind)(flags & (LAST - 1))}, flags >= LAST};
    }

private:
    static constexpr int LAST = 4;  // a bit beyond those of the kinds
};

/// One arrival for the warp, whose lanes have all left what the barrier guards.
__device__ __forceinline__ void warp_arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
