#include "mask/key_span.cuh"
#include "tiles/tiles.cuh"

/// x, of which each warp has its own, in shared memory, for all warps from the block's next barrier on.
template <int WARPS, class T>
__device__ __forceinline__ const T* of_warps(const T& x) {
    alignas(16) __shared__ T places[WARPS];
    const int thread = thread_index();
    if (thread % 32 == 0) places[thread / 32] = x;
    return places;
}

/// The keys that each warp's rows look at. Together they are what the block looks at, so that bounds which are searched for are
/// searched for once. They are kept in shared memory, of which a warp reads its own at each tile: a loop has no registers for them.
template <int WARPS>
struct Ranges {
    const TileRange* ranges;  // of all warps

    /// `range`: of the calling warp. All threads of the block must call.
    __device__ __forceinline__ explicit Ranges(const TileRange& range) {
        alignas(16) __shared__ TileRange places[WARPS];
        if (threadIdx.x % 32 == 0) places[threadIdx.x / 32] = range;
        __syncthreads();
        ranges = places;
    }

    /// From the first key of any warp to the last.
    __device__ __forceinline__ TileRange all() const {
        TileRange all = ranges[0];
#pragma unroll
        for (int warp = 1; warp < WARPS; ++warp) {
            const TileRange range = ranges[warp];
            const bool some = range.begin < range.end, first = all.begin >= all.end;
            all.begin = some ? (first ? range.begin : min(all.begin, range.begin)) : all.begin;
            all.end = some ? (first ? range.end : max(all.end, range.end)) : all.end;
        }
        return all;
    }

    /// The keys that the calling warp's rows look at.
    __device__ __forceinline__ KeySpan keys() const {
        const TileRange& range = ranges[thread_index() / 32];
        return {range.begin, range.end};
    }

    /// The tile as the rows of the calling thread's warp see it.
    template <int BLOCK>
    __device__ __forceinline__ Tile own(const Tile& tile, unsigned thread) const {
        const int first = opaque(tile.kv_first);  // held for the mask in a register of its own, where ptxas would take two
        return {first, (TileKind)uniform(ranges[thread / 32].template kind_at<BLOCK>(first))};
    }
};
