#include "common/rotation.cuh"

// What a warp does with its part of a transposed tile of scores: 16 keys, whose fragments (see mma_16bit.cuh) have queries as
// columns. Packed by twos of neighbouring queries, fragments n and n + 1 are an A operand of a product over the queries.

/// `thread_index`, as a number that isn't negative: remainders of it take one instruction.
__device__ __forceinline__ unsigned own_thread() { return thread_index(); }

/// Visits two neighbouring queries of each key that the lane holds: visit(n, r, column, x, y), where r is the half of 8 keys, x the
/// score of the query at `column`, counted from the tile's first, and y that of the next. Keys vary fastest, so that what
/// depends on the query alone is computed once.
template <int N_TILES, class Visit>
__device__ __forceinline__ void each_pair(float (&scores)[1][N_TILES][4], Visit visit) {
    const int lane_column = own_thread() % 4 * 2;
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r) visit(n, r, lane_column + 8 * n, scores[0][n][2 * r], scores[0][n][2 * r + 1]);
}

/// What a lane of the warp has in x, a struct of 32-bit words.
template <class T>
__device__ __forceinline__ T of_lane(const T& x, int lane) {
    int words[sizeof(T) / 4];
    memcpy(words, &x, sizeof(T));
#pragma unroll
    for (int& word : words) word = __shfl_sync(~0u, word, lane);
    T result;
    memcpy(&result, words, sizeof(T));
    return result;
}

/// Visits fragments in rounds of STEP, for what is long or needs many registers: visit(n, column, x), where n counts from the
/// round's first, and x[2 * r + side] is the score of the query at `column` + side. Those visited move behind the others, as
/// registers can't be counted off; `moved()` moves what else belongs to them.
template <int STEP, int N_TILES, class Visit, class Moved>
__device__ __forceinline__ void each_fragment(float (&scores)[1][N_TILES][4], Visit visit, Moved moved) {
    static_assert(N_TILES % STEP == 0, "all rounds are alike");
    const int lane_column = own_thread() % 4 * 2;
#pragma unroll 1
    for (int column = lane_column; column < 8 * N_TILES; column += 8 * STEP) {
#pragma unroll
        for (int n = 0; n < STEP; ++n) visit(n, column + 8 * n, scores[0][n]);
        rotate_columns<STEP>(scores[0]);
        moved();
    }
}

/// The word of an operand that fragment n and half r of the keys are packed to.
template <int STEPS>
__device__ __forceinline__ unsigned& word_of(unsigned (&operand)[STEPS][4], int n, int r) {
    return operand[n / 2][n % 2 * 2 + r];
}

/// Where this lane's row of four 8 x 8 matrices is: of the first 16 queries, and of the warp's keys as columns.
template <class Tile>
__device__ __forceinline__ unsigned transposed_row(unsigned panel) {
    const int lane = own_thread() % 32, warp = own_thread() / 32 % 4;
    return panel + Tile::template in_panel<128>(lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
}

/// Stores four 8 x 8 matrices transposed, a lane's word of each in x; the lane's address is that of a row of one of them.
__device__ __forceinline__ void store_matrices_transposed(unsigned address, const unsigned (&x)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}
