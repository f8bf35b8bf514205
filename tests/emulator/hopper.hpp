// What kernels for Hopper need besides: barriers in shared memory, TMA, wgmma.
//
// A load of TMA writes garbage at once and the data at some later turn; products are computed when the warpgroup waits for
// them, from what operands hold by then. So what is read too early or overwritten too soon gives wrong results.
#include "device.hpp"

// -------------------------------------------------------------------- barriers

void init_barrier(unsigned address, int arrivals);
void end_barrier(unsigned address);
void arrive(unsigned address, int bytes);
bool arrive_last(unsigned address);
bool phase_over(unsigned address, unsigned parity);
void arrive_at(unsigned address, int rank);
void wait_for_phase(unsigned address, unsigned parity);
void join_named(int id, int threads);
void meet_named(int id, int threads);
int count_named(int id, bool yes);

// -------------------------------------------------------------------- clusters

int cluster_size();
void meet_cluster();
void enter_block(int rank);

// -------------------------------------------------------------------- TMA

struct Corner { int column, inner, outer, head, batch; };
void load_box(unsigned target, const void* map, unsigned barrier, Corner first);
void load_box_for_all(unsigned target, const void* map, unsigned barrier, Corner first);
void load_bytes(unsigned target, const void* source, int bytes, unsigned barrier);
void load_bytes_for_all(unsigned target, const void* source, int bytes, unsigned barrier);
void send_bytes(unsigned target, const void* source, int bytes, unsigned barrier, int rank);

// -------------------------------------------------------------------- wgmma

/// 64 rows, 16 of them the warp's, times 8 * tiles columns, over 32 bytes. A is a descriptor, or the registers of an A
/// fragment. `type` says what the elements are.
struct Product {
    float (*sum)[4];
    int tiles;
    uint64_t a_place;
    const unsigned* a_words;
    uint64_t b;
    bool accumulate, transposed_b;
    Type type;
};
void start(const Product& product);
void finish_all_products();

template <int TILES>
static void start_product(float (&sum)[TILES][4], uint64_t a, uint64_t b, int accumulate, bool transposed_b,
                          float (*widen)(uint16_t)) {
    start({sum, TILES, a, nullptr, b, accumulate != 0, transposed_b, type_of(widen)});
}
template <int TILES>
static void start_product(float (&sum)[TILES][4], uint64_t a, uint64_t b, int accumulate, bool transposed_b,
                          float (*)(uint8_t)) {
    start({sum, TILES, a, nullptr, b, accumulate != 0, transposed_b, Type::QUARTER});
}
template <int TILES>
static void start_product(float (&sum)[TILES][4], const unsigned (&a)[4], uint64_t b, int accumulate, bool transposed_b,
                          float (*widen)(uint16_t)) {
    start({sum, TILES, 0, a, b, accumulate != 0, transposed_b, type_of(widen)});
}
template <int TILES>
static void start_product(float (&sum)[TILES][4], const unsigned (&a)[4], uint64_t b, int accumulate, bool transposed_b,
                          float (*)(uint8_t)) {
    start({sum, TILES, 0, a, b, accumulate != 0, transposed_b, Type::QUARTER});
}

/// stmatrix: 8 rows of 16 bytes of each matrix, at the addresses that eight lanes give.
void write_matrices(unsigned address, const unsigned (&x)[4]);
void store_transposed(unsigned address, const unsigned (&x)[4]);

int __reduce_min_sync(unsigned, int x);
int __reduce_max_sync(unsigned, int x);

/// What a launch has to do for all this, as its hooks.
void begin_block();
void deliver();
