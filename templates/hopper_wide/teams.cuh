#include "scheduler/stream_k.cuh"

// Runs of few queries end with items where that takes little longer: nothing is merged then, and thread blocks that go over the
// keys of one sequence stay side by side.

/// Thread blocks that share out items among themselves: all of them; or where few queries have several blocks of rows, which see
/// the same keys, those that have one block of rows of each key head. Teams have as many thread blocks, and cut alike: what one
/// loads, its neighbour of another team finds in the L2 cache.
struct Team {
    int first_block, blocks;
    int first_q_block, q_blocks;  // that an item may be of
    int teams, step;              // items have a multiple of so many units

    Team() = default;

    __device__ __forceinline__ explicit Team(int teams) : teams(teams), step(1) {
        blocks = (unsigned)gridDim.x / teams;
        const int team = (unsigned)block_index() % teams;
        first_block = team * blocks;
        first_q_block = teams == 1 ? 0 : team;
        q_blocks = teams == 1 ? 1 << 30 : 1;
    }

    /// Of the thread block, in the team; beyond `blocks` one is left over.
    __device__ __forceinline__ int number() const { return (unsigned)block_index() / teams; }

    /// Of a key head's blocks of rows, the end of those that the team has.
    __device__ __forceinline__ int q_blocks_end(int all) const { return min(first_q_block + q_blocks, all); }

    __device__ __forceinline__ int rounded(int units) const { return (units + step - 1) / step * step; }
};

/// Runs that all have as many units.
__device__ __forceinline__ Runs runs_of(int size) { return Runs(size, 1); }

/// The team's runs. Sets its step to their size, if each is to have a part of one item: the smallest size, of up to `slack` units
/// more than of runs that end anywhere, for which there are thread blocks enough. Else runs of several whole heads, if these are
/// alike and that takes no longer either. `all` has the units of all sequences, `all_units` finds them anew as the step is.
template <class Units, class AllUnits>
__device__ __forceinline__ Runs find_runs(Team& team, int heads, int slack, Units& all, AllUnits all_units) {
    const int total = all.total(), least = (total + team.blocks - 1) / team.blocks;
    if (heads > team.blocks) {
        const int of_head = total / heads, size = (heads + team.blocks - 1) / team.blocks * of_head;
        if (all.alike() && of_head * heads == total && size <= least + slack) return runs_of(size);
    }
#pragma unroll 1
    for (team.step = max(least, 1); heads <= team.blocks && team.step <= least + slack; ++team.step) {
        const Units tried = all_units();
        if (tried.total() > team.step * team.blocks) continue;
        all.end = tried.end;
        return runs_of(team.step);
    }
    team.step = 1;
    return Runs(total, max(min(total, team.blocks), 1));
}
