#include "memory/layout.cuh"
#include "portable_forward/kv_rows.cuh"

// Caches of 8 bits whose rows follow each other: a key head of a sequence has one scale.

/// A tile of K or V, in whole panels.
template <int ROW_COUNT, int COLUMNS>
struct CacheTile : SharedTile<ROW_COUNT, (COLUMNS + 31) / 32 * 32> {};

/// What products with keys are multiplied by, and O; 1 where the call gives no scales, or there is no key.
struct CacheScales {
    float of_keys = 1, of_out = 1;

    template <class Params>
    __device__ __forceinline__ CacheScales(const Params& params, int sequence, int kv_head, int kv_len) {
        if (params.k_scale != nullptr && kv_len > 0)
            of_keys = __ldg(params.k_scale + sequence * params.k_scale_stride_row + kv_head * params.k_scale_stride_head);
        if (params.v_scale != nullptr && kv_len > 0)
            of_out = __ldg(params.v_scale + sequence * params.v_scale_stride_row + kv_head * params.v_scale_stride_head);
    }
};

/// What is known of a cache while a block goes over it.
struct CacheState {
    float factor, of_out;  // of products with keys, and of O
    ProbsRange range;

    /// `query_factor`: see take_queries.
    __device__ __forceinline__ void begin(const CacheScales& scales, float query_factor) {
        factor = uniform_float(query_factor * scales.of_keys);
        of_out = uniform_float(scales.of_out);
        range.begin();
    }

    /// Makes O of numbers that of values.
    template <int M_TILES, int D_TILES>
    __device__ __forceinline__ void finish(float (&out)[M_TILES][D_TILES][4]) const {
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) {
            const int m = row / 2, r = row % 2;
            const float factor = range.rest(m, r) * of_out;
#pragma unroll
            for (int d = 0; d < D_TILES; ++d) out[m][d][2 * r] *= factor, out[m][d][2 * r + 1] *= factor;
        }
    }

    /// Makes products of numbers those of keys.
    template <class KTile, int M_TILES, int N_TILES>
    __device__ __forceinline__ void scale(float (&scores)[M_TILES][N_TILES][4], unsigned) const {
#pragma unroll
        for (int i = 0; i < 4 * M_TILES * N_TILES; ++i) scores[i / 4 / N_TILES][i / 4 % N_TILES][i % 4] *= factor;
    }

    /// All values have one scale, which O is multiplied by.
    template <class VTile>
    __device__ __forceinline__ void scale_probs(float (&)[4], unsigned, int) const {}
};

/// The keys and values of one head of one sequence. BYTES are those that the columns take in 16 bits.
struct CacheRows : KvRows {
    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int count) const {
        KvRows::load_keys<Tile, Order, THREADS, BYTES / 2>(target, first, count);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int count) const {
        KvRows::load_values<Tile, Order, THREADS, BYTES / 2>(target, first, count);
    }
};
