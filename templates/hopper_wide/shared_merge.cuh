#include "decode/arrivals.cuh"

// Merging of an item's rows that all thread blocks share which have parts of it. They come one after the other. Who comes when others
// are still at work waits a little, to take a piece of the rows as soon as all have come. Nobody must wait: the last one to leave
// takes what nobody else has. So a launch goes on wherever its thread blocks get room.

/// What a counter of an item counts, in one word: thread blocks that have come, those that have left, pieces that were asked for.
constexpr unsigned COME = 1, LEFT_MERGE = 1 << 10, TAKEN = 1 << 20;
constexpr int NO_PIECE = 1 << 20;
constexpr int MOST_LOOKS = 100;  // of who waits, each about half a microsecond

/// The number of a piece that nobody else has, or of none if not all of `owners` come soon. By one thread.
__device__ __forceinline__ int take_piece(unsigned* counter, int owners) {
#pragma unroll 1
    for (int look = 0; look < MOST_LOOKS; ++look)
        if (counted(counter) % LEFT_MERGE == owners) return count_more(counter, TAKEN) / TAKEN;
    return NO_PIECE;
}

/// The last one to leave makes the counter 0 again, and gets the number of the first piece that nobody has taken; others that of none.
/// By one thread.
__device__ __forceinline__ int leave_merge(unsigned* counter, int owners) {
    const unsigned before = count_more(counter, LEFT_MERGE);
    if (before / LEFT_MERGE % (TAKEN / LEFT_MERGE) != owners - 1) return NO_PIECE;
    *counter = 0;
    return before / TAKEN;
}
