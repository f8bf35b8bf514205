#include "memory/copy.cuh"
#include "tiles/tiles.cuh"
#include "memory/tma_1d.cuh"
#include "memory/words.cuh"

/// The keys and values of one head of one sequence, as entries of their maps.
struct KvRows {
    int key_head, key_batch, value_head, value_batch, kv_start, kv_len;
    int begin, end;   // the keys to look at
    bool followed;    // by rows behind the last key, which may hold anything
};

/// All tiles of a range in ascending order, from its first key on. TMA brings them into a ring of STAGES buffers for K and for V. No
/// barrier joins the warps: each waits for the tile that it is to work on, and the last one to leave a tile asks for the one
/// that takes its place. So they drift apart, by a tile at most, and what one has no rows in, it passes by while others work on it.
template <int STAGES, class Order, int WARPS, class KTile, class VTile>
struct KvStream {
    const TensorMap &k_map, &v_map;
    KvRows& rows;  // in shared memory
    unsigned key_buffers, value_buffers, barriers;
    RingCounter<STAGES> turn = {};
    bool last = false;  // the lane was the last one to leave the tile before
    bool here = false;  // the tile in hand has come

    /// Starts to load the first tiles, and closes the group of what the caller has copied. All threads of the block must call.
    __device__ __forceinline__ KvStream(const TensorMap& k_map, const TensorMap& v_map, const KvRows& kv, unsigned buffers)
        : k_map(k_map), v_map(v_map),
          rows(place()),
          key_buffers(buffers), value_buffers(key_buffers + STAGES * KTile::BYTES),
          barriers(shared_address(barrier_places())) {
        copy_commit();
        if (threadIdx.x != 0) return;
        rows = kv;
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(full(stage), 1);
            barrier_init(empty(stage), WARPS);
        }
        barrier_init_done();
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) load(stage, stage);
    }

    __device__ __forceinline__ bool live() const { return first(turn.turn) < rows.end; }
    __device__ __forceinline__ unsigned keys() const { return key_buffers + turn.stage() * KTile::BYTES; }
    __device__ __forceinline__ unsigned values() const { return value_buffers + turn.stage() * VTile::BYTES; }

    __device__ __forceinline__ Tile tile() const {
        const int kv_first = first(turn.turn);
        return {kv_first, kv_first + Order::BLOCK <= rows.kv_len ? FULL : PARTIAL};
    }

    /// Returns when what the caller has copied is in shared memory, and all that the constructor wrote.
    __device__ __forceinline__ void wait_first() const {
        copy_wait<0>();
        __syncthreads();
    }

    /// Returns when the tile in hand is in shared memory.
    __device__ __forceinline__ void wait() {
        if (!here) barrier_wait(full(turn.stage()), turn.parity());
        if (!__any_sync(~0u, last)) return;
        const RingCounter<STAGES> left = {turn.turn - 1};
        barrier_wait(empty(left.stage()), left.parity());  // it is over: what others read is ordered before the loads
        if (elected_lane()) load(turn.turn + STAGES - 1, left.stage());
    }

    /// Of a tile in hand that isn't FULL: overwrites rows of V behind the last key with zeros, since 0 times what they hold could
    /// be NaN. All warps must call, also for what they pass by: the last tile they do together.
    __device__ __forceinline__ void clear_beyond() const {
        const int keys = rows.kv_len - first(turn.turn);
        if (!rows.followed || keys >= Order::BLOCK) return;
        __syncthreads();  // all have read what the buffer held before
#pragma unroll 1
        for (int panel = 0; panel < VTile::ROW_BYTES / 128; ++panel)
#pragma unroll 1
            for (int byte = 128 * keys + threadIdx.x * 16; byte < VTile::ROWS * 128; byte += 512 * WARPS)
                store_words(values() + panel * VTile::ROWS * 128 + byte, {0, 0, 0, 0});
        __syncthreads();
    }

    /// The warp leaves its tile.
    __device__ __forceinline__ void step() {
        __syncwarp();  // one lane says what all have read
        last = last_arrival(empty(turn.stage()), (unsigned)thread_index() % 32 == 0);
        ++turn.turn;
        here = __all_sync(~0u, barrier_test(full(turn.stage()), turn.parity()));
    }

private:
    static __device__ __forceinline__ KvRows& place() {
        __shared__ KvRows rows;
        return rows;
    }

    static __device__ __forceinline__ unsigned long long* barrier_places() {
        __shared__ unsigned long long barriers[2 * STAGES];
        return barriers;
    }

    __device__ __forceinline__ unsigned full(int stage) const { return barriers + 8 * stage; }
    __device__ __forceinline__ unsigned empty(int stage) const { return barriers + 8 * (STAGES + stage); }

    __device__ __forceinline__ int first(int number) const { return rows.begin + number * Order::BLOCK; }

    __device__ __forceinline__ void load(int number, int stage) const {
        if (first(number) >= rows.end) return;
        const int row = rows.kv_start + first(number);
        barrier_arrive_expecting(full(stage), KTile::BYTES + VTile::BYTES);
        tma_load_panels<KTile, Order>(key_buffers + stage * KTile::BYTES, k_map, full(stage), row, rows.key_head, rows.key_batch);
        tma_load_panels<VTile, Order>(value_buffers + stage * VTile::BYTES, v_map, full(stage), row, rows.value_head,
                                      rows.value_batch);
    }
};
