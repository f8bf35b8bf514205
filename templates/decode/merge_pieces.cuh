#include "decode/arrivals.cuh"
#include "decode/partial_results.cuh"

// Who merges the rows of an item that several thread blocks have parts of (Flash-Decoding, step 3). One block would read many parts of
// many rows for long, so the rows are cut into pieces. A block that has nothing else to do waits until all have come, and then has a
// piece; the last one to come has those that nobody waits for. Nobody must wait: who goes away leaves the piece to the last one. So a
// launch goes on wherever its blocks get room. Who has which piece doesn't change bits.

/// What an item's counter counts, in one word: thread blocks that have come, those of them that wait, and in bits the pieces that were
/// left. It is 0 before the first one comes, and again since the last one came.
constexpr unsigned COME = 1, WAITS = 1 << 10, LEFT = 1 << 20;

/// atomicInc, otherwise as `count_more`.
__device__ __forceinline__ unsigned count_arrival(unsigned* counter, unsigned most) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(most) : "memory");
    return before;
}

/// atomicCAS, otherwise as `count_more`.
__device__ __forceinline__ unsigned change_count(unsigned* counter, unsigned from, unsigned to) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;" : "=r"(before) : "l"(counter), "r"(from), "r"(to) : "memory");
    return before;
}

/// Behind the count of the last one to come, by which whoever finds the 0 sees what all wrote (a release pattern of PTX's memory model).
__device__ __forceinline__ void end_count(unsigned* counter) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(counter), "r"(0) : "memory");
}

/// How the rows of an item are cut: into `count` pieces of `size` rows, but for the last one.
struct MergePieces {
    static constexpr int MOST = 8;
    // Rows of parts that a piece has at least. Who waits begins half a microsecond later than the last one: what a multiprocessor
    // reads in that time is no piece of its own.
    static constexpr int LEAST = 32;
    static constexpr int MOST_LOOKS = 100;  // of who waits, each about half a microsecond

    int size, count;

    MergePieces() = default;

    /// No more pieces than parts: one for each thread block.
    __device__ __forceinline__ MergePieces(int parts, int rows)
        : size(max((rows + MOST - 1) / MOST, small_quotient(max(rows, LEAST) + parts - 1, parts))),
          count(small_quotient(rows + size - 1, size)) {}

    /// The pieces that this thread block has, as bits, when it has come as one of `blocks`; it waits if it `may`. Then it sees what they
    /// wrote before they came. A block that is alone counts nothing: others may count with it for another item. All threads must call.
    __device__ __forceinline__ unsigned take(unsigned* counter, int blocks, bool may) const {
        __shared__ unsigned own;
        __syncthreads();
        if (threadIdx.x == 0) own = blocks == 1 ? (1u << count) - 1 : come(counter, blocks, may);
        __syncthreads();
        return own;
    }

    /// Behind the pieces from `first` on that `own` has one after the other; `first` if it hasn't that.
    static __device__ __forceinline__ int end(unsigned own, int first) { return first + __ffs(~(own >> first)) - 1; }

    /// The same, by one thread.
    __device__ __forceinline__ unsigned come(unsigned* counter, int blocks, bool may) const {
        if (count == 1) return count_arrival(counter, blocks - 1) == blocks - 1;  // nobody waits for the only piece
        const unsigned before = count_more(counter, may ? COME + WAITS : COME);
        if (before % WAITS == blocks - 1) {
            end_count(counter);
            return not_waited_for(before);
        }
        // The last one has piece 0, who waits the next ones.
        const int own = before / WAITS % WAITS + 1;
        return may && own < count && all_come(counter, blocks, LEFT << own) ? 1u << own : 0;
    }

private:
    __device__ __forceinline__ unsigned not_waited_for(unsigned before) const {
        const int waiting = min((int)(before / WAITS % WAITS), MOST);
        const unsigned all = (1u << count) - 1, waited_for = (2u << waiting) - 2, left = before / LEFT;
        return all & ~(waited_for & ~left);
    }

    /// Waits for that. If others come late, it goes away, unless the last one comes just then: the counter then has `left`.
    __device__ __forceinline__ bool all_come(unsigned* counter, int blocks, unsigned left) const {
        auto done = [&](unsigned come) { return come == 0 || come % WAITS == blocks; };
        unsigned come = counted(counter);
#pragma unroll 1
        for (int look = 1; look < MOST_LOOKS && !done(come); ++look) come = counted(counter);
        while (!done(come)) {
            const unsigned before = change_count(counter, come, come | left);
            if (before == come) return false;
            come = before;
        }
        return true;
    }
};
