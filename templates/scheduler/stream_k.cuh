#include "common/math.cuh"
#include "scheduler/grid.cuh"

// Work shared out by units that all take alike long (Stream-K, Osama et al. 2023, Algorithm 5; for attention LeanAttention, Sanovar
// et al. 2024, section 4): the units of all items, laid out one after the other, are cut into equal runs, one for each thread
// block, whatever item they are of. Each warp finds its block's run for itself, so that no barrier stands before the first loads.

/// How many runs there are of `total` units: at most sqrt(total most_parts), so that merging what cut items have in parts takes no
/// longer than it spares: with n units an item, of which a block merges r rows, and items = total / n, most_parts = items / (c r). Of
/// fewer units than `few` there are at most `fewer` runs: one for each multiprocessor, which bring them as fast, and leave fewer parts.
__device__ __forceinline__ int count_runs(int total, float most_parts, int few, int fewer) {
    const float bound = exp2_flushed(0.5f * log2_approximate(fmaxf(total * most_parts, 1.0f)));
    const int blocks = total < few ? min((int)gridDim.x, fewer) : gridDim.x;
    return max(min(min(blocks, total), (int)fminf(bound, 1e6f)), 1);
}

/// All runs: of `size` units, but for the first `longer` ones, which have one more.
struct Runs {
    int size, longer;

    Runs() = default;

    __device__ __forceinline__ Runs(int total, int count) : size(total / count), longer(total - size * count) {}

    __device__ __forceinline__ int begin(int block) const { return block * size + min(block, longer); }

    /// The thread block whose run a unit is in.
    __device__ __forceinline__ int owner(int unit) const {
        const int in_longer = longer * (size + 1);
        return unit < in_longer ? unit / (size + 1) : longer + (unit - in_longer) / size;
    }
};

/// The thread blocks whose runs have units of an item.
struct Owners {
    int first, count;

    Owners() = default;

    template <class AnyRuns>
    __device__ __forceinline__ Owners(const AnyRuns& runs, int first_unit, int units)
        : first(runs.owner(first_unit)), count(runs.owner(first_unit + units - 1) - first + 1) {}
};

/// Of sequences that differ from lane to lane: what `find_rows` finds is the lane's own.
struct LaneWork : Work {};

__device__ __forceinline__ int agreed(const LaneWork&, int x) { return x; }

/// The sum of x over all lanes up to this one.
__device__ __forceinline__ int running_sum(int x) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_up_sync(~0u, x, distance);
        x += lane >= distance ? before : 0;
    }
    return x;
}

/// The units of all sequences, of which `units_of` tells of each: a lane has the sums of some that follow each other.
template <class UnitsOf>
struct SequenceUnits {
    UnitsOf units_of;
    int sequences, each;  // how many there are, and how many a lane has
    int end;              // the first unit behind the lane's
    int last;             // the units of the last of these; 0: there are none
    bool same = true;     // whether all of these have as many

    __device__ __forceinline__ SequenceUnits(int sequences, UnitsOf units_of)
        : units_of(units_of), sequences(sequences), each((sequences + 31) / 32), last(0) {
        const int first = threadIdx.x % 32 * each;
        int units = 0;
#pragma unroll 1
        for (int sequence = first; sequence < min(first + each, sequences); ++sequence) {
            const int own = units_of(sequence);
            same &= sequence == first || own == last;
            last = own;
            units += own;
        }
        end = running_sum(units);
    }

    __device__ __forceinline__ int total() const { return __shfl_sync(~0u, end, 31); }

    /// Whether all sequences have as many units.
    __device__ __forceinline__ bool alike() const {
        const int of_first = __shfl_sync(~0u, last, 0);
        const bool some = (int)(threadIdx.x % 32) * each < sequences;
        return __all_sync(~0u, same && (!some || last == of_first));
    }

    /// The sequence that a unit is of; `first` becomes that one's first unit.
    __device__ __forceinline__ int find(int unit, int& first) const {
        const int lane = __popc(__ballot_sync(~0u, end <= unit));
        const int before = __shfl_sync(~0u, end, max(lane - 1, 0));
        first = lane == 0 ? 0 : before;
        int sequence = lane * each;
        // 32 of that lane's at a time; of few sequences it has one.
        for (int left = each; left > 1; left -= 32, sequence += 32) {
            const int own = threadIdx.x % 32;
            const int units = own < left && sequence + own < sequences ? units_of(sequence + own) : 0;
            const int upto = running_sum(units), passed = __popc(__ballot_sync(~0u, first + upto <= unit));
            const int ahead = __shfl_sync(~0u, upto, max(min(passed, 32) - 1, 0));
            first += passed == 0 ? 0 : ahead;
            if (passed < 32) return sequence + passed;
        }
        return sequence;
    }
};
