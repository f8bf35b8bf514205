#include "attncc/barrier.cuh"
#include "attncc/grid.cuh"
#include "attncc/math.cuh"
#include "attncc/tiles.cuh"

/// What the producer tells the consumers about a stage of keys.
struct Note {
    Tile tile;  // EMPTY: no key matters to the block; nothing is loaded for it
    bool last;  // of a block of queries
    bool end;   // no tile at all: nothing is left to do
};

/// What the producer and the consumers share, behind the tiles in shared memory: barriers, and what only the producer works
/// out. Each stage of keys bears a note, so that consumers walk no tiles; with its Q, each warpgroup gets the work, so that
/// they decode no index. Of the works two are kept, since one is needed again when the next Q has come.
///
/// A warp's first lane reads both and arrives at the barriers that guard them, for all lanes.
template <int STAGES, int WARPGROUPS>
struct Pipeline {
    static constexpr int QUERY_BARRIERS = 4 * STAGES, WORK_WORDS = (sizeof(Work) + 15) / 16 * 4, WORK_BYTES = 4 * WORK_WORDS;
    static constexpr int WORKS_AT = (8 * (QUERY_BARRIERS + 2 * WARPGROUPS) + 15) / 16 * 16;
    static constexpr int NOTES_AT = WORKS_AT + 2 * WARPGROUPS * WORK_BYTES, BYTES = NOTES_AT + 4 * STAGES;

    static_assert(WORK_BYTES == 48, "schedule/legality.py counts so many");

    unsigned base;

    __device__ __forceinline__ unsigned keys_full(int stage) const { return base + 8 * stage; }
    __device__ __forceinline__ unsigned keys_empty(int stage) const { return base + 8 * (STAGES + stage); }
    __device__ __forceinline__ unsigned values_full(int stage) const { return base + 8 * (2 * STAGES + stage); }
    __device__ __forceinline__ unsigned values_empty(int stage) const { return base + 8 * (3 * STAGES + stage); }
    __device__ __forceinline__ unsigned loaded_full(int stage) const { return values_full(stage); }
    __device__ __forceinline__ unsigned loaded_empty(int stage) const { return values_empty(stage); }
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

    /// By one lane, before it arrives at the stage's full barrier.
    __device__ __forceinline__ void write(int stage, const Note& note) const {
        const int word = note.tile.kv_first | (int)note.tile.kind | note.last * LAST | note.end * END;
        asm volatile("st.shared.s32 [%0], %1;" ::"r"(base + NOTES_AT + 4 * stage), "r"(word) : "memory");
    }

    /// By a whole warp, as `read_work`.
    __device__ __forceinline__ Note read(int stage) const {
        int word = 0;
        if (threadIdx.x % 32 == 0)
            asm volatile("ld.shared.s32 %0, [%1];" : "=r"(word) : "r"(base + NOTES_AT + 4 * stage) : "memory");
        word = uniform(word);
        return {{word & -FRAGMENT_KEYS, (TileKind)(word & (LAST - 1))}, (word & LAST) != 0, (word & END) != 0};
    }

    /// By one lane, before it arrives at the warpgroup's full barrier. `turn` is 0 and 1 by turns.
    __device__ __forceinline__ void write_work(int warpgroup, unsigned turn, const Work& work) const {
        int words[WORK_WORDS] = {};
        memcpy(words, &work, sizeof(Work));
#pragma unroll
        for (int i = 0; i < WORK_WORDS; i += 4)
            asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(work_at(warpgroup, turn) + 4 * i), "r"(words[i]),
                         "r"(words[i + 1]), "r"(words[i + 2]), "r"(words[i + 3])
                         : "memory");
    }

    __device__ __forceinline__ Work read_work(int warpgroup, unsigned turn) const {
        int words[WORK_WORDS] = {};
        if (threadIdx.x % 32 == 0)
#pragma unroll
            for (int i = 0; i < WORK_WORDS; i += 4)
                asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(words[i]), "=r"(words[i + 1]), "=r"(words[i + 2]), "=r"(words[i + 3])
                             : "r"(work_at(warpgroup, turn) + 4 * i)
                             : "memory");
        Work work;
        memcpy(&work, words, sizeof(Work));
        return uniform_struct(work);
    }

private:
    // A tile begins at a slot (see stretches.cuh) that is a multiple of 16: the bits below say the rest.
    static constexpr int FRAGMENT_KEYS = 16, LAST = 4, END = 8;

    __device__ __forceinline__ unsigned work_at(int warpgroup, unsigned turn) const {
        return base + WORKS_AT + (2 * warpgroup + turn) * WORK_BYTES;
    }
};
