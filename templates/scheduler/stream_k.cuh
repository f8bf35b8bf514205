#include "common/math.cuh"
#include "scheduler/grid.cuh"

// Work shared out by units that all take alike long (Stream-K, Osama et al. 2023, Algorithm 5; for attention LeanAttention, Sanovar
// et al. 2024, section 4): the units of all items, laid out one after the other, are cut into equal runs, one for each thread
// block, whatever item they are of.

/// A thread block's run of units, [begin, end); all runs but the last have `size`.
struct Share {
    int begin, end, size;

    /// The thread block whose run a unit is in.
    __device__ __forceinline__ int owner(int unit) const { return unit / size; }
};

/// Of sequences that differ from lane to lane: what `find_rows` finds is the lane's own.
struct LaneWork : Work {};

__device__ __forceinline__ int agreed(const LaneWork&, int x) { return x; }

/// The sum of x over all threads up to this one; `total` is that of all. All threads of the block must call.
template <int THREADS>
__device__ __forceinline__ int running_sum(int x, int& total) {
    __shared__ int sums[THREADS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_up_sync(~0u, x, distance);
        x += lane >= distance ? before : 0;
    }
    __syncthreads();  // all have read what a call before has left
    if (lane == 31) sums[warp] = x;
    __syncthreads();
    total = 0;
    int before = 0;
#pragma unroll
    for (int of = 0; of < THREADS / 32; ++of) {
        before += of < warp ? sums[of] : 0;
        total += sums[of];
    }
    return before + x;
}

/// How many units all sequences have; `units_of` tells of each.
template <int THREADS, class UnitsOf>
__device__ __forceinline__ int all_units(int sequences, UnitsOf units_of) {
    int units = 0, total;
#pragma unroll 1
    for (int sequence = threadIdx.x; sequence < sequences; sequence += THREADS) units += units_of(sequence);
    running_sum<THREADS>(units, total);
    return total;
}

/// The sequence that a unit is of, and that one's first unit.
struct SequenceUnits {
    int sequence, first;
};

/// The same sequences as `all_units`, a chunk of THREADS after the other.
template <int THREADS, class UnitsOf>
__device__ __forceinline__ SequenceUnits find_unit(int unit, int sequences, UnitsOf units_of) {
    __shared__ SequenceUnits found;
    int chunk = 0;  // the first unit of the chunk
#pragma unroll 1
    for (int first = 0; first < sequences && chunk <= unit; first += THREADS) {
        const int sequence = first + threadIdx.x, units = sequence < sequences ? units_of(sequence) : 0;
        int total;
        const int end = chunk + running_sum<THREADS>(units, total);
        if (end - units <= unit && unit < end) found = {sequence, end - units};
        chunk += total;
    }
    __syncthreads();
    return found;
}

/// The run of this thread block, of `total` units. Shares have at least so many units that merging what cut items have in parts
/// takes no longer than it spares: with n units an item and r rows, s = sqrt(merge_cost total), merge_cost = c r / items, makes
/// n / s parts.
__device__ __forceinline__ Share share_of(int total, float merge_cost) {
    const int even = (total + gridDim.x - 1) / gridDim.x, least = (int)sqrtf(merge_cost * total);
    Share share;
    share.size = max(max(even, least), 1);
    share.begin = min(block_index() * share.size, total);
    share.end = min(share.begin + share.size, total);
    return share;
}
