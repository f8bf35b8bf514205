#include "decode/tile_rows.cuh"
#include "memory/copy.cuh"
#include "memory/tma_1d.cuh"
#include "memory/words.cuh"
#include "tiles/tiles.cuh"

/// The keys and values of one head of one sequence, as entries of their maps; of these [begin, end), from a multiple of a tile on.
struct KvPart {
    int key_head, key_batch, value_head, value_batch, kv_start, begin, end;
};

/// The barriers of a ring of STAGES tiles, which are there as long as the thread block, and what a warp knows of them.
template <int STAGES, int WARPS>
struct RingBarriers {
    unsigned first;
    RingCounter<STAGES> turn = {};  // tiles that the warp has left
    bool asked = false;             // the next part's first tiles are on their way

    /// All threads of the block must call. A barrier of theirs must follow.
    __device__ __forceinline__ RingBarriers() : first(shared_address(places())) {
        if (threadIdx.x != 0) return;
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(keys_full(stage), 1);
            barrier_init(values_full(stage), 1);
            barrier_init(empty(stage), WARPS);
        }
        barrier_init_done();
    }

    __device__ __forceinline__ unsigned keys_full(int stage) const { return first + 8 * stage; }
    __device__ __forceinline__ unsigned values_full(int stage) const { return keys_full(STAGES + stage); }
    __device__ __forceinline__ unsigned empty(int stage) const { return keys_full(2 * STAGES + stage); }

private:
    static __device__ __forceinline__ unsigned long long* places() {
        __shared__ unsigned long long barriers[3 * STAGES];
        return barriers;
    }
};

/// The tiles of a range (see LiveTiles), brought by TMA into a ring of STAGES places while earlier ones are worked on. The interface is
/// that of kv_ring.cuh, but no barrier joins the warps: the last one to leave a tile asks for the one that takes its place. When all
/// tiles of a part are on their way, the first ones of the part that follows it are asked for.
template <int STAGES, int WARPS, class Order, class KTile, class VTile, class Tiles>
struct KvRing {
    using WholeK = typename KTile::Whole;
    using WholeV = typename VTile::Whole;
    static constexpr int STAGE_BYTES = WholeK::BYTES + WholeV::BYTES;

    const TensorMap &k_map, &v_map;
    RingBarriers<STAGES, WARPS>& barriers;
    const KvPart& part;
    Tiles& tiles;
    unsigned buffers;
    int kv_len;
    bool followed;        // by rows behind the last key, which may hold anything
    KvPart next = {};     // the part that follows; no keys: there is none
    Tile queue[STAGES];   // the tile in hand, and those ahead of it

    /// Starts to load the first tiles that aren't on their way. `load_beside` issues copies of the caller.
    template <class LoadBeside>
    __device__ __forceinline__ KvRing(const TensorMap& k_map, const TensorMap& v_map, RingBarriers<STAGES, WARPS>& barriers,
                                      const KvPart& part, int kv_len, bool followed, Tiles& tiles, unsigned buffers, LoadBeside load_beside)
        : k_map(k_map), v_map(v_map), barriers(barriers), part(part), tiles(tiles), buffers(buffers), kv_len(kv_len), followed(followed) {
#pragma unroll
        for (int i = 0; i < STAGES; ++i) queue[i] = tiles.advance();
        await_kernel_ahead();
        if (!barriers.asked && threadIdx.x < 32 && elected_lane()) {
#pragma unroll
            for (int i = 0; i < STAGES; ++i)
                if (queue[i].kind != EMPTY) load(part, queue[i].kv_first, stage_ahead(i));
        }
        barriers.asked = false;
        load_beside();
        copy_commit();
    }

    /// Says what follows. Where this part leaves places free, that comes there.
    __device__ __forceinline__ void look_ahead(const KvPart& following) {
        next = following;
        barriers.asked = next.begin < next.end;
#pragma unroll
        for (int i = 0; i < STAGES; ++i) number += queue[i].kind == EMPTY;
        if (!barriers.asked || number == 0 || threadIdx.x >= 32 || !elected_lane()) return;
#pragma unroll
        for (int i = 0; i < STAGES; ++i) {
            const int first = next.begin + (number - STAGES + i) * Order::BLOCK;
            if (queue[i].kind == EMPTY && first < next.end) load(next, first, stage_ahead(i));
        }
    }

    __device__ __forceinline__ bool live() const { return queue[0].kind != EMPTY; }
    __device__ __forceinline__ Tile tile() const { return queue[0]; }
    __device__ __forceinline__ unsigned keys(int chunk) const { return keys_at(barriers.turn.stage()) + chunk * KTile::STEP; }

    /// Returns when V is in shared memory, too.
    __device__ __forceinline__ unsigned values(int chunk) const {
        const int stage = barriers.turn.stage();
        barrier_wait(barriers.values_full(stage), barriers.turn.parity());
        const unsigned values = values_at(stage) + chunk * VTile::STEP;
        clear_beyond(values, max(kv_len - queue[0].kv_first - chunk * VTile::ROWS, 0));
        return values;
    }

    /// Returns when the caller's own copies are in shared memory.
    __device__ __forceinline__ void wait_first() const {
        copy_wait<0>();
        __syncthreads();
    }

    /// Returns when K of the tile in hand is in shared memory.
    __device__ __forceinline__ void wait() const {
        barrier_wait(barriers.keys_full(barriers.turn.stage()), barriers.turn.parity());
    }

    /// The warp leaves its tile.
    __device__ __forceinline__ void step() {
        const RingCounter<STAGES> left = barriers.turn;
        __syncwarp();  // one lane says what all have read
        const bool last = last_arrival(barriers.empty(left.stage()), threadIdx.x % 32 == 0);
        const bool behind = queue[STAGES - 1].kind == EMPTY;
#pragma unroll
        for (int i = 1; i < STAGES; ++i) queue[i - 1] = queue[i];
        if (!behind) queue[STAGES - 1] = tiles.advance();
        ++barriers.turn.turn;
        // What takes its place: the tile behind those of the queue, or one of the next part.
        const bool own = queue[STAGES - 1].kind != EMPTY;
        const int first = own ? queue[STAGES - 1].kv_first : next.begin + number * Order::BLOCK;
        number += !own;
        const bool exists = own || first < next.end;
        if (!__any_sync(~0u, last) || !exists) return;
        barrier_wait(barriers.empty(left.stage()), left.parity());  // it is over: what others read is ordered before the loads
        if (elected_lane()) load(own ? part : next, first, left.stage());
    }

    /// Returns when all warps have left the ring.
    __device__ __forceinline__ void drain() const { __syncthreads(); }

private:
    int number = 0;  // tiles of the next part that there were places for

    __device__ __forceinline__ unsigned keys_at(int stage) const { return buffers + stage * STAGE_BYTES; }
    __device__ __forceinline__ unsigned values_at(int stage) const { return keys_at(stage) + WholeK::BYTES; }

    __device__ __forceinline__ int stage_ahead(int count) const {
        const RingCounter<STAGES> turn = {barriers.turn.turn + count};
        return turn.stage();
    }

    /// Overwrites rows of a warp's chunk of V from `keys` on with zeros, if they may hold anything: 0 times that could be NaN. Warps
    /// that share a chunk do so each for itself.
    __device__ __forceinline__ void clear_beyond(unsigned values, int keys) const {
        if (!followed || keys >= VTile::ROWS) return;
#pragma unroll 1
        for (int panel = 0; panel < VTile::ROW_BYTES / 128; ++panel)
#pragma unroll 1
            for (int byte = 128 * keys + threadIdx.x % 32 * 16; byte < VTile::STEP; byte += 512)
                store_words(values + panel * WholeV::ROWS * 128 + byte, {0, 0, 0, 0});
        fence_async();  // later loads come there
        __syncwarp();
    }

    __device__ __forceinline__ void load(KvPart from, int first, int stage) const {
        const int row = from.kv_start + first;
        barrier_arrive_expecting(barriers.keys_full(stage), WholeK::BYTES);
        tma_load_panels<WholeK, Order>(keys_at(stage), k_map, barriers.keys_full(stage), row, from.key_head, from.key_batch);
        barrier_arrive_expecting(barriers.values_full(stage), WholeV::BYTES);
        tma_load_panels<WholeV, Order>(values_at(stage), v_map, barriers.values_full(stage), row, from.value_head, from.value_batch);
    }
};
