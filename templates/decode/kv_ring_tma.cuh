#include "decode/tile_rows.cuh"
#include "memory/copy.cuh"
#include "memory/tma_1d.cuh"
#include "memory/words.cuh"
#include "tiles/tiles.cuh"

/// A ring of STAGES tiles of K and V that TMA fills, as long as the thread block is there. A full barrier counts the bytes of K, or of V;
/// an empty one the warps that have left a tile.
template <int STAGES, int WARPS, class KTile, class VTile>
struct TmaRing {
    using WholeK = typename KTile::Whole;
    using WholeV = typename VTile::Whole;
    static constexpr int STAGE_BYTES = WholeK::BYTES + WholeV::BYTES;

    unsigned buffers, barriers;

    /// All threads of the block must call. A barrier of theirs must follow.
    __device__ __forceinline__ explicit TmaRing(unsigned buffers) : buffers(buffers), barriers(shared_address(places())) {
        if (threadIdx.x != 0) return;
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(keys_full(stage), 1);
            barrier_init(values_full(stage), 1);
            barrier_init(empty(stage), WARPS);
        }
        barrier_init_done();
    }

    __device__ __forceinline__ unsigned keys(int stage) const { return buffers + stage * STAGE_BYTES; }
    __device__ __forceinline__ unsigned values(int stage) const { return keys(stage) + WholeK::BYTES; }
    __device__ __forceinline__ unsigned keys_full(int stage) const { return barriers + 8 * stage; }
    __device__ __forceinline__ unsigned values_full(int stage) const { return keys_full(STAGES + stage); }
    __device__ __forceinline__ unsigned empty(int stage) const { return keys_full(2 * STAGES + stage); }

private:
    static __device__ __forceinline__ unsigned long long* places() {
        __shared__ unsigned long long barriers[3 * STAGES];
        return barriers;
    }
};

/// The tiles of a range (see LiveTiles), as the warps see them that work on them. The interface is that of kv_ring.cuh, but no barrier
/// joins the warps.
template <int STAGES, class Ring, class KTile, class VTile, class Tiles>
struct KvRing {
    const Ring& ring;
    RingCounter<STAGES>& turn;  // tiles that the warp has left
    Tiles& tiles;
    int kv_len;
    bool followed;  // by rows behind the last key, which may hold anything
    Tile in_hand;

    __device__ __forceinline__ KvRing(const Ring& ring, RingCounter<STAGES>& turn, Tiles& tiles, int kv_len, bool followed)
        : ring(ring), turn(turn), tiles(tiles), kv_len(kv_len), followed(followed), in_hand(tiles.advance()) {}

    __device__ __forceinline__ bool live() const { return in_hand.kind != EMPTY; }
    __device__ __forceinline__ Tile tile() const { return in_hand; }
    __device__ __forceinline__ unsigned keys(int chunk) const { return ring.keys(turn.stage()) + chunk * KTile::STEP; }

    /// Returns when V is in shared memory, too.
    __device__ __forceinline__ unsigned values(int chunk) const {
        barrier_wait(ring.values_full(turn.stage()), turn.parity());
        const unsigned values = ring.values(turn.stage()) + chunk * VTile::STEP;
        clear_beyond(values, max(kv_len - in_hand.kv_first - chunk * VTile::ROWS, 0));
        return values;
    }

    /// Returns when the caller's own copies are in shared memory.
    __device__ __forceinline__ void wait_first() const {
        copy_wait<0>();
        __syncthreads();
    }

    /// Returns when K of the tile in hand is in shared memory.
    __device__ __forceinline__ void wait() const { barrier_wait(ring.keys_full(turn.stage()), turn.parity()); }

    /// The warp leaves its tile.
    __device__ __forceinline__ void step() {
        __syncwarp();  // one lane says what all have read
        warp_arrive(ring.empty(turn.stage()));
        ++turn.turn;
        in_hand = tiles.advance();
    }

    /// Returns when all warps have left the ring.
    __device__ __forceinline__ void drain() const { __syncthreads(); }

private:
    /// Overwrites rows of a warp's chunk of V from `keys` on with zeros, if they may hold anything: 0 times that could be NaN. Warps
    /// that share a chunk do so each for itself.
    __device__ __forceinline__ void clear_beyond(unsigned values, int keys) const {
        if (!followed || keys >= VTile::ROWS) return;
#pragma unroll 1
        for (int panel = 0; panel < VTile::ROW_BYTES / 128; ++panel)
#pragma unroll 1
            for (int byte = 128 * keys + threadIdx.x % 32 * 16; byte < VTile::STEP; byte += 512)
                store_words(values + panel * Ring::WholeV::ROWS * 128 + byte, {0, 0, 0, 0});
        fence_async();  // later loads come there
        __syncwarp();
    }
};

/// How many parts the warps that work have begun, in shared memory: what they merged before is over.
__device__ __forceinline__ unsigned begun_parts(const unsigned* count) {
    unsigned parts;
    asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(parts) : "l"(count) : "memory");
    return parts;
}

__device__ __forceinline__ void begin_part(unsigned* count, unsigned parts) {
    asm volatile("st.release.cta.u32 [%0], %1;" ::"l"(count), "r"(parts) : "memory");
}
