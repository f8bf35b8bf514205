#include "scheduler/stream_k.cuh"

/// Runs that don't cut pieces, or don't go on from piece to piece, where that takes no longer: up to `parts` of each `each` units, of `size`
/// units, but for the first `longer` ones, which have one more, and the last; others are empty.
struct HeadRuns : Runs {
    int each, parts;

    HeadRuns() = default;

    /// Up to `count` runs. One that goes on with another piece, a head or a block of its rows, begins anew: nothing is on its way then, for
    /// as long as AGAIN units take, or half as many where two runs share a multiprocessor, as they do if they aren't `few`. So pieces that
    /// are `alike` are cut each by itself, or runs have several whole ones, if no run becomes longer by more. Blocks of rows `share_keys`:
    /// cut alike, they read the same ones at the same time, which spares more. Where units are `few`, runs have two, as far as pieces have: a
    /// run's first two tiles are on their way at once, so one alone is no faster, and leaves more parts.
    __device__ __forceinline__ HeadRuns(int total, int count, int pieces, bool share_keys, bool alike, bool few)
        : Runs(total, count), each(total), parts(ALL) {
        constexpr int AGAIN = 4;
        constexpr int LEAST = 2;
        constexpr int SHARED = 4;
        if (!alike || total >= SMALL) return;
        const int of_piece = small_quotient(total, pieces);
        const int may_have = size + (few ? AGAIN : AGAIN / 2) + (share_keys ? size / SHARED : 0);
        if (of_piece * pieces != total) return;
        if (pieces > count) {
            const int whole = small_quotient(pieces + count - 1, count) * of_piece;
            if (whole <= may_have) size = whole, longer = 0;
            return;
        }
        const int most = small_quotient(count, pieces);
        const int longest = max(small_quotient(of_piece + most - 1, most), few ? min(of_piece, LEAST) : 1);
        if (longest > may_have) return;
        each = of_piece;
        parts = most;
        size = longest;
        longer = 0;
    }

    __device__ __forceinline__ int begin(int block) const {
        const int before = small_quotient(block, parts);
        return before * each + min(Runs::begin(block - before * parts), each);
    }

    /// The thread block whose run a unit is in.
    __device__ __forceinline__ int owner(int unit) const {
        const int before = unit / each;
        return before * parts + Runs::owner(unit - before * each);
    }

private:
    static constexpr int ALL = 1 << 20;    // more runs than there are
    static constexpr int SMALL = 1 << 21;  // below, small_quotient is exact
};
