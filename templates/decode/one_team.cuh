/// Thread blocks that share out items among themselves: all of them, and all blocks of rows. Kernels of wide heads on Hopper have
/// others (hopper_wide/teams.cuh).
struct Team {
    static constexpr int first_q_block = 0;

    __device__ __forceinline__ int q_blocks_end(int all) const { return all; }

    /// How many units an item of so many has.
    __device__ __forceinline__ int rounded(int units) const { return units; }
};
