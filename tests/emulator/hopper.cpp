// The parts of Hopper: barriers, TMA, wgmma. Compiled once for all kernels.
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

// -------------------------------------------------------------------- TMA

/// What a test puts into a TensorMap: axes (column, grid column, grid row, head, batch), sizes and strides in units of 16
/// bits. Where tiles are 1-D, rows are the grid columns of its only row.
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
            const long long at[5] = {first.column + column, first.grid_column + row % map.across,
                                     first.grid_row + row / map.across, first.head, first.batch};
            long long offset = 0;
            bool inside = true;
            for (int axis = 0; axis < 5; ++axis) {
                inside &= at[axis] >= 0 && at[axis] < map.sizes[axis];
                offset += at[axis] * map.strides[axis];
            }
            const uint16_t value = inside ? map.base[offset] : 0;
            memcpy(&transfer.data[row * 128 + (column / 8 ^ row % 8) * 16 + column % 8 * 2], &value, 2);
        }
    if (target % 1024) fail("a swizzled box at no multiple of 1024 bytes");
    return transfer;
}

void load_box(unsigned target, const void* map, unsigned barrier, Corner first) { send(box(target, map, barrier, first)); }

void load_box_for_all(unsigned target, const void* map, unsigned barrier, Corner first) {
    const int here = block_rank;
    for (int rank = 0; rank < cluster_size(); ++rank) {
        enter_block(rank);
        load_box(target, map, barrier, first);
    }
    enter_block(here);
}

void load_bytes(unsigned target, const void* source, int bytes, unsigned barrier) {
    const unsigned char* first = (const unsigned char*)source;
    send({target, barrier, std::vector<unsigned char>(first, first + bytes)});
}

void load_bytes_for_all(unsigned target, const void* source, int bytes, unsigned barrier) {
    const int here = block_rank;
    for (int rank = 0; rank < cluster_size(); ++rank) {
        enter_block(rank);
        load_bytes(target, source, bytes, barrier);
    }
    enter_block(here);
}

void send_bytes(unsigned target, const void* source, int bytes, unsigned barrier, int rank) {
    const int here = block_rank;
    const unsigned char* first = (const unsigned char*)source;
    Transfer transfer = {target, barrier, std::vector<unsigned char>(first, first + bytes), rank};
    enter_block(rank);
    send(std::move(transfer));
    enter_block(here);
}

// -------------------------------------------------------------------- wgmma

/// An operand in shared memory, by its matrix descriptor (PTX ISA): element `k` of those summed over, in row or column `i`.
template <class Bits>
static float element_of(uint64_t descriptor, int i, int k, bool transposed, float (*widen)(Bits)) {
    if (transposed && sizeof(Bits) == 1) fail("8-bit operands are never transposed");
    const unsigned start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
    const unsigned stride = (descriptor >> 32 & 0x3fff) << 4;
    const unsigned row_bytes = descriptor >> 62 == 3 ? 32 : 128;
    unsigned address;
    if (descriptor >> 62 == 0)  // no swizzle: 8 rows of 16 bytes, `leading` from 8 columns to the next, `stride` from 8 rows
        address = start + i / 8 * stride + k / 8 * leading + i % 8 * 16 + k % 8 * 2;
    else if (!transposed)
        address = start + i / 8 * stride + i % 8 * row_bytes + k * sizeof(Bits);
    else
        address = start + i / 64 * leading + k / 8 * stride + k % 8 * 128 + i % 64 * 2;
    if (descriptor >> 62 != 0) address ^= (address >> 7 & row_bytes / 16 - 1) << 4;
    return widen(shared_at<Bits>(address));
}

static std::vector<Product> products[2048];  // of each thread, not yet waited for
static std::vector<float> b_elements[64];    // of each warp: [column][k]

template <class Bits>
static void multiply_tile(const Product& product, float (*widen)(Bits)) {
    const int lane = current % 32, warp_row = current / 32 % 4 * 16, size = sizeof(Bits), depth = 32 / size;
    float a[2][32];
    for (int word = 0; product.a_words != nullptr && word < 4; ++word) tell(word, product.a_words[word]);
    std::vector<float>& b = b_elements[current / 32];
    b.resize(product.tiles * 8 * depth);
    for (int i = lane; i < b.size(); i += 32)  // each lane reads a part for all
        b[i] = element_of(product.b, i / depth, i % depth, product.transposed_b, widen);
    meet_warp();
    for (int half = 0; half < 2; ++half)
        for (int k = 0; k < depth; ++k) {
            if (product.a_words == nullptr) {
                a[half][k] = element_of(product.a_place, warp_row + lane / 4 + 8 * half, k, false, widen);
            } else {
                const int byte = k * size;
                const unsigned word = ask<unsigned>(lane / 4 * 4 + byte % 16 / 4, half + byte / 16 * 2);
                a[half][k] = widen((Bits)(word >> 8 * (byte % 4)));
            }
        }
    for (int n = 0; n < product.tiles; ++n)
        for (int side = 0; side < 2; ++side) {
            float* sum = product.sum[n];
            double first = product.accumulate ? sum[side] : 0, second = product.accumulate ? sum[2 + side] : 0;
            const float* column = &b[(8 * n + lane % 4 * 2 + side) * depth];
            for (int k = 0; k < depth; ++k) {
                first += (double)a[0][k] * column[k];
                second += (double)a[1][k] * column[k];
            }
            sum[side] = first;
            sum[2 + side] = second;
        }
    meet_warp();
}

void start(const Product& product) { products[current].push_back(product); }

void finish_all_products() {
    for (const Product& product : products[current]) {
        if (product.widen != nullptr) multiply_tile(product, product.widen);
        else multiply_tile(product, product.widen_quarter);
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
