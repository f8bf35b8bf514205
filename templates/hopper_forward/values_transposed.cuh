#include "hopper_forward/pipeline.cuh"
#include "memory/finished.cuh"
#include "mma/transpose.cuh"
#include "mma/warpgroup.cuh"
#include "mma/wgmma.cuh"

// P V of 8-bit operands, which takes V transposed (Shah et al., "FlashAttention-3", 2024, section 3.3): by warps between
// TMA and the consumers, or for all blocks of queries by a launch before, where there are many (transpose_values.cu.j2).

constexpr int TRANSPOSING_BARRIER = 7;  // behind those of warpgroup.cuh

/// A pipeline whose values pass through the hands of warps that transpose them: `loaded` barriers join these with TMA, and
/// `values` barriers with the consumers. With each loaded tile comes the number of its rows to keep, or that there are no more.
template <int STAGES, int WARPGROUPS, int GROUPS>
struct ValuesPipeline : Pipeline<STAGES, WARPGROUPS, GROUPS> {
    using Base = Pipeline<STAGES, WARPGROUPS, GROUPS>;
    static constexpr int LOADED_AT = (Base::BYTES + 7) / 8 * 8, ROWS_AT = LOADED_AT + 16 * STAGES;
    static constexpr int END = -1;

    __device__ __forceinline__ unsigned loaded_full(int stage) const { return Base::base + LOADED_AT + 8 * stage; }
    __device__ __forceinline__ unsigned loaded_empty(int stage) const {
        return Base::base + LOADED_AT + 8 * (STAGES + stage);
    }

    __device__ __forceinline__ void init(int leaving) const {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(loaded_full(stage), 1);
            barrier_init(loaded_empty(stage), TRANSPOSING_WARPS);
        }
        Base::init(leaving);
    }

    /// By one lane, before it arrives at the stage's full barrier.
    __device__ __forceinline__ void write_rows(int stage, int rows) const { store_word(rows_at(stage), rows); }

    __device__ __forceinline__ void write_end(int stage) const {
        write_rows(stage, END);
        barrier_arrive(loaded_full(stage));
    }

    /// By a whole warp, whose first lane reads for all.
    __device__ __forceinline__ int read_rows(int stage) const { return Base::take_word(rows_at(stage)); }

private:
    __device__ __forceinline__ unsigned rows_at(int stage) const { return Base::base + ROWS_AT + 4 * stage; }
};

/// Offsets of the steps' panels, and from a descriptor of other tiles to one of these: rows are 32 bytes.
template <class ValuesTile>
struct ValuesSteps {
    static constexpr __device__ __forceinline__ unsigned at(int step) { return step * ValuesTile::PANEL_BYTES >> 4; }
};
constexpr unsigned long long VALUES_FORM = descriptor_form(SWIZZLE_32, 8 * 32) - descriptor_form(SWIZZLE_128, 8 * 128);

/// Probabilities of column tiles to pairs of operands, halves of words.
template <class Dtype, int TILES>
__device__ __forceinline__ void pack_pairs(unsigned short (&pairs)[TILES][2], const float (*x)[4]) {
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i) pairs[i / 2][i % 2] = Dtype::pack_two(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
}

/// The A operand of a step, from the pairs of four tiles of 8 keys.
__device__ __forceinline__ void join_pairs(unsigned (&words)[4], const unsigned short (*pairs)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = pairs[i / 2 * 2][i % 2] | (unsigned)pairs[i / 2 * 2 + 1][i % 2] << 16;
}

/// The A operand of a step, from its probabilities.
template <class Dtype>
__device__ __forceinline__ void pack_probs(unsigned (&words)[4], const float (*x)[4]) {
    unsigned short pairs[4][2];
    pack_pairs<Dtype>(pairs, x);
    join_pairs(words, pairs);
}

/// Where tile `number` of those that begin with a slot of a sequence is, among those that were transposed ahead: all of a head
/// stand together, in a packed batch those of its sequences, of which each begins where its blocks of keys do (grid.cuh).
template <int BLOCK_KV, class Tile, class Params>
__device__ __forceinline__ const unsigned char* tile_ahead(const Params& params, const Work& work, int kv_head, int slot) {
    const int before = params.cu_seqlens_kv == nullptr ? 0 : work.kv_start / BLOCK_KV + work.sequence;
    const long long head = (long long)work.batch_index * params.num_kv_heads + kv_head;
    return params.values_ahead + (head * params.kv_tiles + before + slot / BLOCK_KV) * Tile::BYTES;
}

/// What the last warps do until there are no more values.
template <class Loaded, class Transposed, class Shared>
__device__ __forceinline__ void transpose_values(const Shared& shared) {
    constexpr int FIRST_WARP = WARPS + 4 - TRANSPOSING_WARPS, THREADS_HERE = 32 * TRANSPOSING_WARPS;
    const int warp = uniform((int)threadIdx.x / 32) - FIRST_WARP;
    for (Ring<STAGES> ring{0};; ring.advance()) {
        const int stage = ring.stage;
        barrier_wait(shared.loaded_full(stage), ring.parity);
        const int rows = shared.read_rows(stage);
        if (rows == Shared::END) return;
        barrier_wait(shared.values_empty(stage), ring.parity ^ 1);
        if (rows < Loaded::ROWS) clear_rows<Loaded, THREADS_HERE>(shared.loaded(stage), rows, TRANSPOSING_BARRIER);
        transpose_tile<Loaded, Transposed, TRANSPOSING_WARPS>(shared.loaded(stage), shared.values(stage), warp);
        fence_async();
        named_wait(TRANSPOSING_BARRIER, THREADS_HERE);
        if (threadIdx.x % 32 == 0) barrier_arrive(shared.loaded_empty(stage));  // each lane that has read the number of rows
        if (threadIdx.x == 32 * FIRST_WARP) barrier_arrive(shared.values_full(stage));
    }
}
