// The parts of Hopper: barriers, TMA, wgmma. Compiled once for all kernels.
#define ATTNCC_DEVICE_ITSELF
#include "hopper.hpp"

#include <map>
#include <utility>
#include <vector>

// -------------------------------------------------------------------- barriers

struct Barrier {
    int expected, pending;
    long bytes;
    int phase;  // 0 or 1

    void settle() {
        if (pending < 0) fail("more arrivals than a barrier expects");
        if (pending > 0 || bytes != 0) return;
        pending = expected;
        phase ^= 1;
    }
};
struct Meeting { int arrived, generation; };

using Place = std::pair<int, unsigned>;  // block of the cluster, and address or number there
static std::map<Place, Barrier> barriers;
static std::map<Place, Meeting> meetings;  // named barriers

static Barrier& barrier_at(unsigned address, int rank = block_rank) {
    const auto found = barriers.find({rank, address});
    if (found == barriers.end()) fail("no barrier there");
    return found->second;
}
void init_barrier(unsigned address, int arrivals) { barriers[{block_rank, address}] = {arrivals, arrivals, 0, 0}; }
void end_barrier(unsigned address) {
    if (barrier_at(address).bytes != 0) fail("a barrier ends that loads still come to");
    barriers.erase({block_rank, address});
}
static void arrive(Barrier& barrier, int bytes) {
    barrier.bytes += bytes;
    --barrier.pending;
    barrier.settle();
}
void arrive(unsigned address, int bytes) { arrive(barrier_at(address), bytes); }
bool arrive_last(unsigned address) {
    Barrier& barrier = barrier_at(address);
    const bool last = barrier.pending == 1;
    arrive(barrier, 0);
    return last;
}
bool phase_over(unsigned address, unsigned parity) { return barrier_at(address).phase != (int)parity; }
void arrive_at(unsigned address, int rank) { arrive(barrier_at(address, rank), 0); }
void wait_for_phase(unsigned address, unsigned parity) {
    await_change(barrier_at(address).phase, parity);
}
void join_named(int id, int threads) { Meeting& there = meetings[{block_rank, id}]; join(there.arrived, there.generation, threads); }
void meet_named(int id, int threads) { Meeting& there = meetings[{block_rank, id}]; meet(there.arrived, there.generation, threads); }
int count_named(int id, bool yes) {
    tell(0, yes);
    meet_named(id, 128);
    int count = 0;
    for (int thread = current / 128 * 128; thread < current / 128 * 128 + 128; ++thread) {
        bool said;
        memcpy(&said, &warps[thread / 32].slots[thread % 32][0], sizeof(said));
        count += said;
    }
    meet_named(id, 128);
    return count;
}

// -------------------------------------------------------------------- TMA

/// What a test puts into a TensorMap: axes (column, inner row, outer row, head, batch), sizes and strides in units of 16
/// bits. The inner and the outer row are the column and the row of a grid, or a head of a group and a query. Where rows
/// have one axis, that is the inner one.
struct Map {
    const uint16_t* base;
    long long sizes[5], strides[5];
    int across, down;  // positions of a box, of 64 columns each
};
struct Transfer {
    unsigned target, barrier;
    std::vector<unsigned char> data;
    int rank = block_rank;  // of the block that gets it
};
static std::vector<Transfer> transfers;

static void send(Transfer transfer) {
    if (transfer.target % 16 || transfer.target + transfer.data.size() > shared_size) fail("bad target of a load");
    memset(shared_memory + transfer.target, 0xff, transfer.data.size());
    transfers.push_back(std::move(transfer));
}

/// Some of the loads arrive.
void deliver() {
    for (size_t i = 0; i < transfers.size();) {
        if (dice() % 4) { ++i; continue; }
        const Transfer& done = transfers[i];
        enter_block(done.rank);
        memcpy(shared_memory + done.target, done.data.data(), done.data.size());
        barrier_at(done.barrier).bytes -= done.data.size();
        barrier_at(done.barrier).settle();
        transfers.erase(transfers.begin() + i);
    }
}

static Transfer box(unsigned target, const void* map_bytes, unsigned barrier, Corner first) {
    const Map& map = *(const Map*)map_bytes;
    const int rows = map.across * map.down;
    Transfer transfer = {target, barrier, std::vector<unsigned char>(rows * 128)};
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < 64; ++column) {
            const long long at[5] = {first.column + column, first.inner + row % map.across,
                                     first.outer + row / map.across, first.head, first.batch};
            long long offset = 0;
            bool inside = true;
            for (int axis = 0; axis < 5; ++axis) {
                inside &= at[axis] >= 0 && at[axis] < map.sizes[axis];
                offset += at[axis] * map.strides[axis];
            }
            const uint16_t value = inside ? map.base[offset] : 0;
            counts.read += 2 * inside, counts.arrived += 2;  // zeros arrive as well
            memcpy(&transfer.data[row * 128 + (column / 8 ^ row % 8) * 16 + column % 8 * 2], &value, 2);
        }
    if (target % 1024) fail("a swizzled box at no multiple of 1024 bytes");
    return transfer;
}

void load_box(unsigned target, const void* map, unsigned barrier, Corner first) { send(box(target, map, barrier, first)); }

/// What a load for all blocks of a cluster read since `before`, it read once.
static void read_once(long long before) { counts.read = before + (counts.read - before) / cluster_size(); }

void load_box_for_all(unsigned target, const void* map, unsigned barrier, Corner first) {
    const int here = block_rank;
    const long long before = counts.read;
    for (int rank = 0; rank < cluster_size(); ++rank) {
        enter_block(rank);
        load_box(target, map, barrier, first);
    }
    read_once(before);
    enter_block(here);
}

void load_bytes(unsigned target, const void* source, int bytes, unsigned barrier) {
    const unsigned char* first = (const unsigned char*)source;
    counts.read += bytes, counts.arrived += bytes;
    send({target, barrier, std::vector<unsigned char>(first, first + bytes)});
}

void load_bytes_for_all(unsigned target, const void* source, int bytes, unsigned barrier) {
    const int here = block_rank;
    const long long before = counts.read;
    for (int rank = 0; rank < cluster_size(); ++rank) {
        enter_block(rank);
        load_bytes(target, source, bytes, barrier);
    }
    read_once(before);
    enter_block(here);
}

void send_bytes(unsigned target, const void* source, int bytes, unsigned barrier, int rank) {
    const int here = block_rank;
    const unsigned char* first = (const unsigned char*)source;
    Transfer transfer = {target, barrier, std::vector<unsigned char>(first, first + bytes), rank};
    counts.arrived += bytes > 4 ? bytes : 0;  // a word says what comes next
    enter_block(rank);
    send(std::move(transfer));
    enter_block(here);
}

// -------------------------------------------------------------------- wgmma

/// Where an operand in shared memory has element `k` of those summed over, in row or column `i`, by its matrix descriptor
/// (PTX ISA). Elements stand together by 16 bytes: along `i` where `along_i` says so, else along `k`.
static unsigned address_of(uint64_t descriptor, int i, int k, int size, bool along_i) {
    const unsigned start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
    const unsigned stride = (descriptor >> 32 & 0x3fff) << 4;
    const unsigned row_bytes = descriptor >> 62 == 3 ? 32 : 128;
    if (descriptor >> 62 == 0)  // no swizzle: 8 rows of 16 bytes, `leading` from 8 columns to the next, `stride` from 8 rows
        return start + i / 8 * stride + k / 8 * leading + i % 8 * 16 + k % 8 * 2;
    const unsigned address = along_i ? start + i / 64 * leading + k / 8 * stride + k % 8 * 128 + i % 64 * 2
                                     : start + i / 8 * stride + i % 8 * row_bytes + k * size;
    return address ^ (address >> 7 & row_bytes / 16 - 1) << 4;
}
/// The 16 bytes of elements that begin there.
template <class Bits>
static const Bits* elements_at(uint64_t descriptor, int i, int k, bool along_i) {
    if (sizeof(Bits) == 1 && (along_i || descriptor >> 62 == 0)) fail("8-bit operands are swizzled and never transposed");
    return (const Bits*)&shared_at<uint4>(address_of(descriptor, i, k, sizeof(Bits), along_i), 16);
}

static std::vector<Product> products[2048];  // of each thread, not yet waited for
static std::vector<float> b_elements[64];    // of each warp: [columns of four lanes][k][columns of one lane]

template <class Bits, float (*WIDEN)(Bits)>
static void multiply_tile(const Product& product) {
    const int lane = current % 32, warp_row = current / 32 % 4 * 16;
    constexpr int SIZE = sizeof(Bits), DEPTH = 32 / SIZE, TOGETHER = 16 / SIZE;
    const int columns = 2 * product.tiles;  // of a lane
    float a[2][DEPTH];
    for (int word = 0; product.a_words != nullptr && word < 4; ++word) tell(word, product.a_words[word]);
    std::vector<float>& b = b_elements[current / 32];
    b.resize(4 * DEPTH * columns);
    const bool along_i = product.transposed_b && product.b >> 62 != 0;
    for (int piece = lane; piece < 16 * product.tiles; piece += 32) {  // each lane reads a part for all
        const int i = along_i ? piece / DEPTH * 8 : piece / 2, k = along_i ? piece % DEPTH : piece % 2 * TOGETHER;
        const Bits* found = elements_at<Bits>(product.b, i, k, along_i);
        for (int n = 0; n < TOGETHER; ++n) {
            const int column = along_i ? i + n : i, row = along_i ? k : k + n;
            b[(column % 8 / 2 * DEPTH + row) * columns + column / 8 * 2 + column % 2] = WIDEN(found[n]);
        }
    }
    meet_warp();
    const Bits* found = nullptr;
    for (int half = 0; half < 2; ++half)
        for (int k = 0; k < DEPTH; ++k) {
            const int byte = k * SIZE;
            if (product.a_words == nullptr) {
                if (byte % 16 == 0) found = elements_at<Bits>(product.a_place, warp_row + lane / 4 + 8 * half, k, false);
                a[half][k] = WIDEN(found[k % TOGETHER]);
            } else {
                const unsigned word = ask<unsigned>(lane / 4 * 4 + byte % 16 / 4, half + byte / 16 * 2);
                a[half][k] = WIDEN((Bits)(word >> 8 * (byte % 4)));
            }
        }
    double first[64], second[64];
    for (int n = 0; n < columns; ++n) {
        first[n] = product.accumulate ? product.sum[n / 2][n % 2] : 0;
        second[n] = product.accumulate ? product.sum[n / 2][2 + n % 2] : 0;
    }
    for (int k = 0; k < DEPTH; ++k) {
        const float* row = &b[(lane % 4 * DEPTH + k) * columns];
        for (int n = 0; n < columns; ++n) {
            first[n] += (double)a[0][k] * row[n];
            second[n] += (double)a[1][k] * row[n];
        }
    }
    for (int n = 0; n < columns; ++n) {
        product.sum[n / 2][n % 2] = first[n];
        product.sum[n / 2][2 + n % 2] = second[n];
    }
    meet_warp();
}

static float quarter_in_table(uint8_t bits) {
    static const std::vector<float> table = [] {
        std::vector<float> all(256);
        for (int each = 0; each < 256; ++each) all[each] = quarter_to_float(each);
        return all;
    }();
    return table[bits];
}

void start(const Product& product) { products[current].push_back(product); }

void finish_all_products() {
    for (const Product& product : products[current]) {
        if (product.type == Type::QUARTER) multiply_tile<uint8_t, quarter_in_table>(product);
        else if (product.type == Type::HALF) multiply_tile<uint16_t, half_to_float>(product);
        else multiply_tile<uint16_t, bf16_to_float>(product);
    }
    products[current].clear();
}

void write_matrices(unsigned address, const unsigned (&x)[4]) {
    shared_at<uint4>(address, 16);
    const int lane = current % 32;
    tell(4, address);
    for (int i = 0; i < 4; ++i) tell(i, x[i]);
    meet_warp();
    check_banks(4);
    for (int column = 0; column < 4; ++column)
        shared_at<unsigned>(address + 4 * column) = ask<unsigned>(lane % 8 * 4 + column, lane / 8);
    meet_warp();
}

void store_transposed(unsigned address, const unsigned (&x)[4]) {
    shared_at<uint4>(address, 16);
    const int lane = current % 32;
    tell(4, address);
    for (int i = 0; i < 4; ++i) tell(i, x[i]);
    meet_warp();
    // This lane writes its own row, of matrix lane / 8: row r of it is column r of what lanes hold.
    for (int column = 0; column < 8; ++column) {
        const unsigned word = ask<unsigned>(column * 4 + lane % 8 / 2, lane / 8);
        shared_at<uint16_t>(address + 2 * column) = word >> 16 * (lane % 2);
    }
    meet_warp();
}

static int least_in_warp(int x) {
    return exchange(x, [] {
        int least = ask<int>(0, 0);
        for (int lane = 1; lane < 32; ++lane) least = min(least, ask<int>(lane, 0));
        return least;
    });
}
int __reduce_min_sync(unsigned, int x) { return least_in_warp(x); }
int __reduce_max_sync(unsigned, int x) { return -least_in_warp(-x); }

void begin_block() {
    barriers.clear();
    meetings.clear();
    transfers.clear();
    for (auto& started : products) started.clear();
}
