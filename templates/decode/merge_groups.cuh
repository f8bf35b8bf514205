#include "decode/partial_results.cuh"
#include "scheduler/stream_k.cuh"

/// Many parts of an item are merged in two steps, since one thread block would read them for long: in each group of thread blocks the last
/// one merges its group's parts to one part, and of those the last one merges these. What is in a group depends on the item's runs alone.
struct MergeGroups {
    // The second step costs an arrival and a way to the L2 cache and back, some 2 us: 4,000 clocks, in which a multiprocessor reads
    // 128 KB, 256 rows of 128 columns. So many rows the steps must spare the block that would read all. `_SPARED_ROWS` of
    // kernels/decode/facts.py is the same number.
    static constexpr int SPARED_ROWS = 256;

    int first, end;  // thread blocks of the item: two or more
    int shift;       // a group has 2^shift of them; 0: there is one step, that of all

    /// About as many groups as each has parts.
    __device__ __forceinline__ MergeGroups(const Owners& owners, int rows) : first(owners.first), end(owners.first + owners.count) {
        shift = (33 - __clz(owners.count - 1)) / 2;
        if ((owners.count - (2 << shift)) * rows <= SPARED_ROWS) shift = 0;
    }
};

/// What is merged at once: parts of one group, or in the last step those of all groups.
struct MergeStep {
    bool last;
    int begin;           // the thread block in whose slot its first part is, and what the step finds
    int stride, blocks;  // how far it is to the next one's, and how many
    int counter;         // of those that have come

    /// Counters of an item are at its thread blocks but the last, where another may begin. A group of one alone counts nobody.
    __device__ __forceinline__ MergeStep(const MergeGroups& groups, bool last) : last(last) {
        const int size = 1 << groups.shift;
        begin = last ? groups.first : groups.first + ((int)blockIdx.x - groups.first) / size * size;
        stride = last ? size : 1;
        blocks = last ? (groups.end - begin + size - 1) / size : min(groups.end - begin, size);
        counter = begin + (last && size > 1);
    }

    /// A thread block has two slots: the second one for the item that begins in its run.
    __device__ __forceinline__ int slot(const MergeGroups& groups) const { return 2 * begin + (begin == groups.first); }
};
