// Warpgroup matrix multiply (wgmma, sm_90a): asynchronous, operands in shared memory in panels of 64 columns with the
// 128-byte swizzle (`SharedTile` with rows of a multiple of 128 bytes), or A in registers. Accumulators are x[n][i]:
// warp w of the group has rows 16w to 16w + 15, and its lanes the rows and columns that mma.m16n8k16 would give them.

// Operands of products: the accumulators of a column tile, or of four; a step's offsets of B and A, or A's registers.
#define SUM_TILE(n) "+f"(sum[n][0]), "+f"(sum[n][1]), "+f"(sum[n][2]), "+f"(sum[n][3])
#define SUM_TILES(n) SUM_TILE(n), SUM_TILE(n + 1), SUM_TILE(n + 2), SUM_TILE(n + 3)
#define A_IN_SMEM(step) "n"(BSteps::at(step)), "n"(ASteps::at(step))
#define A_IN_REGISTERS(step) "n"(BSteps::at(step)), "r"(a[step][0]), "r"(a[step][1]), "r"(a[step][2]), "r"(a[step][3])

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Keeps the compiler from moving uses of an asynchronous result above the wait for it.
template <int N_TILES>
__device__ __forceinline__ void pin(float (&x)[1][N_TILES][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N_TILES; ++i) asm volatile("" : "+f"(x[0][i / 4][i % 4])::"memory");
}

/// Leaves undefined what a product is about to overwrite: else the compiler would keep it until then.
template <int N_TILES>
__device__ __forceinline__ void forget(float (&x)[1][N_TILES][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N_TILES; ++i) asm volatile("" : "=f"(x[0][i / 4][i % 4]));
}

/// `pin` of 16-bit operands in registers, which a product may still be reading.
template <int STEPS>
__device__ __forceinline__ void pin_operand(unsigned (&x)[STEPS][4]) {
#pragma unroll
    for (int i = 0; i < 4 * STEPS; ++i) asm volatile("" : "+r"(x[i / 4][i % 4])::"memory");
}

/// x, by an instruction that ptxas doesn't leave out, as it does with moves: were what the next product reads written in its
/// place while another is under way, ptxas would serialise them.
__device__ __forceinline__ unsigned moved(unsigned x) {
    unsigned zero;
    asm("mov.u32 %0, %%ctaid.y;" : "=r"(zero));  // grids have one dimension
    return x | zero;
}

/// Waits until at most PENDING groups are under way; `result` is what the others computed.
template <int PENDING, int N_TILES>
__device__ __forceinline__ void wgmma_wait(float (&result)[1][N_TILES][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    pin(result);
}

/// COUNT column tiles of accumulators, from FIRST on.
template <int FIRST, int COUNT, int N_TILES>
__device__ __forceinline__ float (&columns_of(float (&x)[N_TILES][4]))[COUNT][4] {
    static_assert(FIRST + COUNT <= N_TILES, "within the tile");
    return reinterpret_cast<float(&)[COUNT][4]>(x[FIRST]);
}

/// A step's registers of an A operand, as an operand of one step.
template <int STEPS>
__device__ __forceinline__ unsigned (&step_of(unsigned (&x)[STEPS][4], int step))[1][4] {
    return reinterpret_cast<unsigned(&)[1][4]>(x[step]);
}

[[maybe_unused]] constexpr unsigned long long SWIZZLE_128 = 1, SWIZZLE_32 = 3;

/// What a matrix descriptor (PTX ISA) says besides addresses: the swizzle, and how many bytes 8 rows take.
constexpr __device__ unsigned long long descriptor_form(unsigned long long swizzle, unsigned eight_rows) {
    return swizzle << 62 | (unsigned long long)eight_rows >> 4 << 32;
}

/// A matrix descriptor of a tile in panels of 128 bytes: its address, and the offset from panel to panel, which counts
/// where columns aren't summed over. Added to it are offsets in units of 16 bytes, by one 64-bit uniform instruction.
__device__ __forceinline__ unsigned long long descriptor(unsigned address, unsigned panel_bytes) {
    return descriptor_form(SWIZZLE_128, 8 * 128) | panel_bytes >> 4 << 16 | (address & 0x3ffff) >> 4;
}

/// Offsets of 16 columns each, for operands whose columns are summed over: steps from FIRST on, of a tile of ROWS rows.
template <int ROWS, int FIRST = 0>
struct ColumnSteps {
    static constexpr __device__ __forceinline__ unsigned at(int step) {
        return ((FIRST + step) / 4 * ROWS * 128 + (FIRST + step) % 4 * 32) >> 4;
    }
};

/// Offsets of 16 rows each, for operands whose rows are summed over.
struct RowSteps {
    static constexpr __device__ __forceinline__ unsigned at(int step) { return step * 16 * 128 >> 4; }
};

template <int COUNT>
__device__ __forceinline__ void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT>
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
