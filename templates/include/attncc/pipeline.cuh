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
    static constexpr int NOTES_AT = 8 * NOTES, BYTES = NOTES_AT + 8 * STAGES;

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

    /// By one lane of the producer, before it arrives at the stage's full barrier.
    __device__ __forceinline__ void write(int stage, const Note& note) const {
        asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(base + NOTES_AT + 8 * stage), "r"(note.block),
                     "r"(note.tile.kv_first | (int)note.tile.kind | note.last * LAST)
                     : "memory");
    }

    /// By a whole warp. The lane that reads is the one that `warp_arrive` lets arrive at the stage's empty barrier.
    __device__ __forceinline__ Note read(int stage) const {
        int block = 0, tile = 0;
        if (threadIdx.x % 32 == 0)
            asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(block), "=r"(tile) : "r"(base + NOTES_AT + 8 * stage)
                         : "memory");
        block = uniform(block);
        tile = uniform(tile);
        return {block, {tile & -FRAGMENT_KEYS, (TileKind)(tile & (LAST - 1))}, (tile & LAST) != 0};
    }

private:
    // A tile begins at a multiple of 16 keys: the bits below say the rest.
    static constexpr int FRAGMENT_KEYS = 16, LAST = 4;
};

/// One arrival for the warp. Its lanes have left what the barrier guards: what they did there together (wgmma, ldmatrix) or
/// before a barrier of theirs is done, and of the notes this lane is the only reader.
__device__ __forceinline__ void warp_arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
