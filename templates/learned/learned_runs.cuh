#include "learned/learned.cuh"

/// A place for each pair, of tiles that a lane goes through twice. The first time, the sum of one that is known to have one place
/// is added; pairs of another are met a second time, with `apart`, in an order in which neighbours often have one place: such
/// runs are summed up before they are added to memory.
template <int M_TILES>
struct PairRuns : TileSum {
    long long place;  // of the run

    template <class Add>
    __device__ __forceinline__ void pair(int, float x, Add) { sum += x; }

    __device__ __forceinline__ void begin_apart() {
        sum = 0;
        place = -1;
    }
    /// `at` is -1 for a pair without a place. add(place, x) adds to memory.
    template <class Add>
    __device__ __forceinline__ void apart(long long at, float x, Add add) {
        if (at != place) {
            end_apart(add);
            place = at;
            sum = 0;
        }
        sum += x;
    }
    template <class Add>
    __device__ __forceinline__ void end_apart(Add add) {
        if (!same & place >= 0 & sum != 0) add(place, sum);
    }
};
