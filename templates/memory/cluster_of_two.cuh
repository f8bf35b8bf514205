#include "memory/barrier.cuh"
#include "memory/tma_1d.cuh"

__device__ __forceinline__ unsigned cluster_blocks() {
    unsigned blocks;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    return blocks;
}

__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(rank));
    return rank;
}

/// Waits for all threads of the cluster.
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory"); }

/// The address, among all of the cluster, of what block `rank` has at that one.
__device__ __forceinline__ unsigned place_in(unsigned address, unsigned rank) {
    unsigned place;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(address), "r"(rank));
    return place;
}

__device__ __forceinline__ void barrier_arrive_there(unsigned place) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(place) : "memory");
}

/// Arrives at the barrier that block `rank` of the cluster has in that place.
__device__ __forceinline__ void barrier_arrive_at(unsigned barrier, unsigned rank) {
    barrier_arrive_there(place_in(barrier, rank));
}

/// `tma_load` to the same place in both blocks of a cluster, whose barriers count the bytes each.
__device__ __forceinline__ void tma_load_for_both(unsigned target, const TensorMap& map, unsigned barrier, int column, int row,
                                                  int head, int batch) {
    asm volatile(
        "{ .reg .b16 both;\n"
        "mov.b16 both, 3;\n"
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], both; }" ::"r"(target),
        "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
        : "memory");
}

/// `bulk_load` to the same place in both blocks of a cluster.
__device__ __forceinline__ void bulk_load_for_both(unsigned target, const void* source, int bytes, unsigned barrier) {
    asm volatile(
        "{ .reg .b16 both;\n"
        "mov.b16 both, 3;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], both; }" ::"r"(
            target),
        "l"(source), "r"(bytes), "r"(barrier)
        : "memory");
}

/// Copies bytes to `target` in block `rank` of the cluster, whose `barrier` expects them.
__device__ __forceinline__ void send_to(unsigned target, unsigned source, int bytes, unsigned barrier, unsigned rank) {
    asm volatile(
        "{ .reg .b32 place, full;\n"
        "mapa.shared::cluster.u32 place, %0, %4;\n"
        "mapa.shared::cluster.u32 full, %3, %4;\n"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [place], [%1], %2, [full]; }" ::"r"(target),
        "r"(source), "r"(bytes), "r"(barrier), "r"(rank)
        : "memory");
}

/// Sends a word.
__device__ __forceinline__ void send_word_to(unsigned target, int word, unsigned barrier, unsigned rank) {
    asm volatile(
        "{ .reg .b32 place, full;\n"
        "mapa.shared::cluster.u32 place, %0, %3;\n"
        "mapa.shared::cluster.u32 full, %2, %3;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [place], %1, [full]; }" ::"r"(target),
        "r"(word), "r"(barrier), "r"(rank)
        : "memory");
}

/// Releases stages for a warp (CUTLASS: consumer_release): each of its first lanes tells a block of the cluster, the first one its own, which alone reads what
/// the block's producer writes. How far that block's barriers are is found once.
struct ConsumerRelease {
    const bool tells;
    const unsigned distance;

    /// `address`: any in shared memory.
    __device__ __forceinline__ explicit ConsumerRelease(unsigned address)
        : tells((unsigned)thread_index() % 32 < cluster_blocks()),
          distance(place_in(address, tells ? cluster_rank() ^ (unsigned)thread_index() % 32 : 0) - address) {}

    /// `warp_arrive` at the barriers of all blocks.
    __device__ __forceinline__ void arrive(unsigned barrier) const {
        if (tells) barrier_arrive_there(barrier + distance);
    }
};

/// Two thread blocks of a cluster that go through the same tiles, of keys or backward of queries: each loads every other panel of
/// a tile, for both. Where a launch has no clusters, each block is one of its own.
struct Cluster {
    /// How many have a stage in common: none writes to it before the warps of all have left it.
    static __device__ __forceinline__ int blocks() { return cluster_blocks(); }
    static __device__ __forceinline__ int rank() { return cluster_rank(); }

    /// No block may be written to before its barriers are there, or when it has ended.
    static __device__ __forceinline__ void begin() {
        if (cluster_blocks() > 1) cluster_wait();
    }
    static __device__ __forceinline__ void end() { begin(); }

    /// `tma_load_panels`; the block whose rank is `first` loads the first panel.
    template <class Tile, class Order>
    static __device__ __forceinline__ void load_panels(unsigned target, const TensorMap& map, unsigned barrier, int position,
                                                       int head, int batch, unsigned first) {
        if (cluster_blocks() == 1) return tma_load_panels<Tile, Order>(target, map, barrier, position, head, batch);
        constexpr int PANELS = Tile::ROW_BYTES / 128;
#pragma unroll
        for (int i = 0; i < PANELS; i += 2) {
            const int panel = i + (cluster_rank() ^ first);
            if (panel >= PANELS) return;
            tma_load_for_both(target + panel * Tile::ROWS * 128, map, barrier, panel * 64, position, head, batch);
        }
    }

    /// `bulk_load`; each block loads a half, of a multiple of 16 bytes.
    static __device__ __forceinline__ void load_bytes(unsigned target, const unsigned char* source, int bytes, unsigned barrier) {
        if (cluster_blocks() == 1) return bulk_load(target, source, bytes, barrier);
        const int own = cluster_rank() * (bytes / 2);
        bulk_load_for_both(target + own, source + own, bytes / 2, barrier);
    }

    /// Copies bytes to `target` of the other block, whose `barrier` expects them.
    static __device__ __forceinline__ void send(unsigned target, unsigned source, int bytes, unsigned barrier) {
        send_to(target, source, bytes, barrier, cluster_rank() ^ 1);
    }
    static __device__ __forceinline__ void tell(unsigned target, int word, unsigned barrier) {
        send_word_to(target, word, barrier, cluster_rank() ^ 1);
    }
    static __device__ __forceinline__ void arrive_at_other(unsigned barrier) { barrier_arrive_at(barrier, cluster_rank() ^ 1); }
};
