// The device itself: threads and the order they run in, copies, matrix instructions. Compiled once for all kernels.
#define ATTNCC_DEVICE_ITSELF
#include "device.hpp"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

void fail(const char* what) {
    fprintf(stderr, "device: %s\n", what);
    abort();
}

// -------------------------------------------------------------------- threads

struct Copy { unsigned target; unsigned char data[16]; };
using Place = void* [5];  // to go on at
/// A stack for threads, one after the other; small, since each turn looks at all of them.
struct Fiber {
    Place place;
    const int* awaited;  // it goes on once this is no longer `seen`
    int seen;
    bool begun, done;  // whether it has a place; whether its thread is at its end
    std::vector<Copy> issued;
    std::vector<std::vector<Copy>> groups;  // the oldest first
};

Warp* warps;
int current;
Index blockIdx, gridDim;
static std::vector<Fiber> fibers;
static std::vector<Warp> all_warps;
static int threads_here;  // that run; there may be more fibers
static Place scheduler;
/// Of the thread blocks that run beside each other; all but those of a cluster run one after the other.
struct Block {
    std::vector<unsigned char> memory;
    int arrived, generation;
    bool votes[2];  // those of two barriers may be apart at once

    unsigned char* shared() { return memory.data() + (1024 - (uintptr_t)memory.data() % 1024) % 1024; }
};
static std::vector<Block> blocks_here;
static int first_block, cluster_arrived, cluster_generation;
int block_rank, block_threads;
static std::mt19937 generator;

unsigned dice() { return generator(); }

// Threads change by the compiler's own jumps: `swapcontext` makes two system calls, and `longjmp` does what no thread here needs.
// A function that sets a place may not jump itself.
__attribute__((noinline)) [[noreturn]] static void go_to(Place& place) { __builtin_longjmp(place, 1); }
__attribute__((noinline)) void yield() {
    if (__builtin_setjmp(fibers[current].place) == 0) go_to(scheduler);
}

// Threads that wait get no turns: to take one is most of what an instruction costs here.
void await_change(const int& word, int seen) {
    if (word != seen) return;
    fibers[current].awaited = &word;
    fibers[current].seen = seen;
    yield();
    fibers[current].awaited = nullptr;
}

void join(int& arrived, int& generation, int expected) {
    if (++arrived < expected) return;
    arrived = 0;
    ++generation;
}
void meet(int& arrived, int& generation, int expected) {
    const int mine = generation;
    join(arrived, generation, expected);
    await_change(generation, mine);
}
void meet_warp() { meet(warps[current / 32].arrived, warps[current / 32].generation, 32); }
void __syncthreads() { meet(blocks_here[block_rank].arrived, blocks_here[block_rank].generation, block_threads); }
void meet_cluster() { meet(cluster_arrived, cluster_generation, threads_here); }
int cluster_size() { return blocks_here.size(); }

/// What the thread that runs sees of its block.
void enter_block(int rank) {
    block_rank = rank;
    blockIdx.x = first_block + rank;
    shared_memory = blocks_here[rank].shared();
}

uint64_t take_from_lane(uint64_t given, int lane) {
    return exchange(given, [&] { return ask<uint64_t>(lane, 0); });
}
unsigned __ballot_sync(unsigned, bool x) {
    return exchange(x, [] {
        unsigned votes = 0;
        for (int lane = 0; lane < 32; ++lane) votes |= (unsigned)ask<bool>(lane, 0) << lane;
        return votes;
    });
}
int same_in_warp(int x) {
    return exchange(x, [&] {
        for (int lane = 0; lane < 32; ++lane)
            if (ask<int>(lane, 0) != x) fail("a value said to be uniform differs between lanes");
        return x;
    });
}

bool __syncthreads_and(bool x) {
    Block& block = blocks_here[block_rank];
    const int barrier = block.generation % 2;
    if (block.arrived == 0) block.votes[barrier] = true;
    block.votes[barrier] &= x;
    __syncthreads();
    return block.votes[barrier];
}

// -------------------------------------------------------------------- the kernel ahead

/// Device memory that the kernel ahead is still at work on: garbage, until all threads of a block have waited for that kernel, or
/// as many as `waiters`.
struct Range { unsigned char* begin; size_t bytes; };
static const unsigned char GARBAGE = 0xfd;  // as ints negative, as floats huge
static std::vector<Range> ranges_ahead;
static std::vector<std::vector<unsigned char>> left_by_ahead;
static int waiting_for_ahead, ahead_is_over, waiters;

extern "C" void put_kernel_ahead(const Range* ranges, int count, int threads) {
    ranges_ahead.assign(ranges, ranges + count);
    waiters = threads;
}

/// Before a block begins.
static void begin_kernel_ahead() {
    waiting_for_ahead = 0;
    ahead_is_over = ranges_ahead.empty();
    left_by_ahead.clear();
    for (const Range& range : ranges_ahead) {
        left_by_ahead.emplace_back(range.begin, range.begin + range.bytes);
        memset(range.begin, GARBAGE, range.bytes);
    }
}

/// When a block's threads have waited, or all have ended.
static void finish_kernel_ahead() {
    if (ahead_is_over) return;
    for (const Range& range : ranges_ahead)
        for (size_t at = 0; at < range.bytes; ++at)
            if (range.begin[at] != GARBAGE) fail("memory is written before the kernel ahead is over");
    for (size_t i = ranges_ahead.size(); i-- > 0;)  // backwards, since ranges may meet
        memcpy(ranges_ahead[i].begin, left_by_ahead[i].data(), ranges_ahead[i].bytes);
    ahead_is_over = 1;
}

void end_kernel_ahead() {
    if (ahead_is_over) return;
    if (++waiting_for_ahead == (waiters ? waiters : threads_here)) finish_kernel_ahead();
    await_change(ahead_is_over, 0);
}

// -------------------------------------------------------------------- shared memory

unsigned char* shared_memory;
size_t shared_size;

Counts counts;
extern "C" void take_counts(Counts* taken) { *taken = counts, counts = {}; }

void issue_copy(unsigned target, const void* source, bool exists) {
    if (exists) counts.read += 16, counts.arrived += 16;
    if (exists && (uintptr_t)source % 16) fail("misaligned copy");
    Copy copy = {target, {}};
    if (exists) memcpy(copy.data, source, 16);
    memset(&shared_at<uint4>(target, 16), 0xff, 16);
    fibers[current].issued.push_back(copy);
}
void close_group() {
    fibers[current].groups.push_back(std::move(fibers[current].issued));
    fibers[current].issued.clear();
}
void wait_groups(size_t pending) {
    auto& groups = fibers[current].groups;
    for (; groups.size() > pending; groups.erase(groups.begin()))
        for (const Copy& copy : groups.front()) memcpy(shared_memory + copy.target, copy.data, 16);
}

/// The rows of each of four matrices, whose addresses stand in a slot, meet all banks.
void check_banks(int slot) {
    for (int matrix = 0; matrix < 4; ++matrix) {
        unsigned banks = 0;
        for (int row = 0; row < 8; ++row) banks |= 1u << ask<unsigned>(8 * matrix + row, slot) / 16 % 8;
        if (banks != 255) fail("bank conflict");
    }
}

void read_matrices(unsigned (&x)[4], unsigned address, bool transposed) {
    shared_at<uint4>(address, 16);
    tell(0, address);
    meet_warp();
    const int lane = current % 32, across = lane / 4, along = lane % 4 * 2;
    check_banks(0);
    for (int matrix = 0; matrix < 4; ++matrix) {
        auto element = [&](int row, int column) {
            return (unsigned)shared_at<uint16_t>(ask<unsigned>(8 * matrix + row, 0) + 2 * column);
        };
        x[matrix] = transposed ? element(along, across) | element(along + 1, across) << 16
                               : element(across, along) | element(across, along + 1) << 16;
    }
    meet_warp();
}

// -------------------------------------------------------------------- arithmetic

void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Type type) {
    auto widen = [&](uint16_t bits) { return type == Type::HALF ? half_to_float(bits) : bf16_to_float(bits); };
    auto both = [&](unsigned word) { return float2{widen(word), widen(word >> 16)}; };
    for (int i = 0; i < 4; ++i) tell(i, both(a[i]));
    tell(4, both(b0));
    tell(5, both(b1));
    meet_warp();
    auto element = [](int lane, int slot, int k) {
        const float2 found = ask<float2>(lane, slot);
        return k % 2 ? found.y : found.x;
    };
    for (int i = 0; i < 4; ++i) {
        const int row = current % 32 / 4, column = current % 4 * 2 + i % 2;
        double sum = d[i];
        for (int k = 0; k < 16; ++k)
            sum += (double)element(row * 4 + k % 8 / 2, k / 8 * 2 + i / 2, k) *
                   element(column * 4 + k % 8 / 2, 4 + k / 8, k);
        d[i] = sum;
    }
    meet_warp();
}

// -------------------------------------------------------------------- launches

void (*before_block)() = [] {};
void (*between_turns)() = [] {};

static const size_t STACK = 1 << 18;  // bytes of a thread
static void (*thread_body)();

/// One thread after the other, each of its own block or kernel: a new fiber takes system calls.
static void run_threads() {
    for (;;) {
        thread_body();
        fibers[current].done = true;
        yield();
    }
}

/// On a stack of its own, from its beginning.
__attribute__((noinline)) [[noreturn]] static void begin(Fiber& fiber) {
    static std::vector<std::unique_ptr<char[]>> stacks;  // kept, as fibers are
    stacks.emplace_back(new char[STACK]);
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks.back().get();
    start.uc_stack.ss_size = STACK;
    makecontext(&start, run_threads, 0);
    fiber.begun = true;
    setcontext(&start);
    fail("a thread can't begin");
}

/// Until the thread yields or ends.
__attribute__((noinline)) static void resume(Fiber& fiber) {
    if (__builtin_setjmp(scheduler) != 0) return;
    if (!fiber.begun) begin(fiber);
    go_to(fiber.place);
}

void launch(void (*body)(), int blocks, int threads, size_t shared_bytes, unsigned seed, int cluster, unsigned order_of_blocks) {
    shared_size = shared_bytes;
    generator.seed(seed);
    gridDim.x = blocks;
    thread_body = body;
    block_threads = threads;
    threads *= cluster;
    threads_here = threads;
    if ((int)fibers.size() < threads) fibers.resize(threads);  // with those that have begun
    std::vector<int> firsts;
    for (int first = 0; first < blocks; first += cluster) firsts.push_back(first);
    if (order_of_blocks == 1) std::reverse(firsts.begin(), firsts.end());
    if (order_of_blocks > 1) std::shuffle(firsts.begin(), firsts.end(), std::mt19937(order_of_blocks));
    for (int first : firsts) {
        first_block = first;
        blocks_here.assign(cluster, Block{std::vector<unsigned char>(shared_bytes + 1024, 0xff)});
        cluster_arrived = cluster_generation = 0;
        all_warps.assign(threads / 32, Warp{});
        warps = all_warps.data();
        before_block();
        begin_kernel_ahead();
        std::vector<int> order;
        for (int thread = 0; thread < threads; ++thread) {
            Fiber& fiber = fibers[thread];
            fiber.awaited = nullptr, fiber.done = false;
            fiber.issued.clear(), fiber.groups.clear();
            if (thread % 32 == 0) order.push_back(thread);
        }
        for (int left = threads, turns = 0; left > 0; ++turns) {
            if (turns > 1000000) fail("deadlock");
            std::shuffle(order.begin(), order.end(), generator);
            between_turns();
            for (int first : order) {
                enter_block(first / block_threads);
                for (unsigned again = dice() % 8 + 1; again > 0; --again)
                    for (current = first; current < first + 32; ++current) {
                        Fiber& fiber = fibers[current];
                        if (fiber.done || (fiber.awaited != nullptr && *fiber.awaited == fiber.seen)) continue;
                        resume(fiber);
                        left -= fiber.done;
                    }
            }
        }
        finish_kernel_ahead();
    }
}
