// Sets of a tile's keys as bits, 32 keys of a lane at a time: bit 2 n + side is for the position n * STEP + side *
// SIDE, counted from the lane's first (the accumulator layout of mma_16bit.cuh, and where its columns stand).

/// How many of the lane's keys are among `positions` that begin with the lane's first; not cut off at 32.
template <int STEP = 8, int SIDE = 1>
__device__ __forceinline__ int lane_keys(int positions) {
    const unsigned count = max(positions, 0);
    return (count + STEP - 1) / STEP + (count + STEP - 1 - SIDE) / STEP;
}

/// Those among the first `positions`.
template <int STEP = 8, int SIDE = 1>
__device__ __forceinline__ unsigned bits_below(int positions) {
    return __funnelshift_lc(~0u, 0u, lane_keys<STEP, SIDE>(positions));
}

/// Those whose place in a period is below `limit`, at most PERIOD; `place` is that of the lane's first key.
template <int PERIOD, int PERIODS>
__device__ __forceinline__ unsigned remainder_bits(int place, int limit) {
    unsigned bits = bits_below(limit - place);
#pragma unroll
    for (int start = PERIOD; start < PERIODS * PERIOD; start += PERIOD)
        bits |= bits_below(start + limit - place) & ~bits_below(start - place);
    return bits;
}

/// What holds for the lane's first two keys holds for all.
__device__ __forceinline__ unsigned repeated_bits(bool first, bool second) {
    return (first ? 0x55555555u : 0u) | (second ? 0xaaaaaaaau : 0u);
}

/// All or none.
__device__ __forceinline__ unsigned row_bits(bool holds) { return holds ? ~0u : 0u; }
