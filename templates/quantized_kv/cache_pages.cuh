#include "memory/layout.cuh"
#include "memory/copy_pages.cuh"
#include "memory/words.cuh"
#include "memory/shared_floats.cuh"

// Caches of 8 bits in pages: a key head of a page, or of a sequence, has a scale. Each row brings its own.

/// A tile of K or V, in whole panels, then the scale of each row.
template <int ROW_COUNT, int COLUMNS>
struct CacheTile : SharedTile<ROW_COUNT, (COLUMNS + 31) / 32 * 32> {
    static constexpr int SCALES = SharedTile<ROW_COUNT, (COLUMNS + 31) / 32 * 32>::BYTES, BYTES = SCALES + (4 * ROW_COUNT + 127) / 128 * 128;
};

/// The row of scales that the first key of a sequence has; -1 where no page has it.
template <class Params>
__device__ __forceinline__ long long first_scale_row(const Params& params, int sequence, int kv_len) {
    if (!params.scales_of_pages) return sequence;
    if (kv_len <= 0) return -1;
    const PagedKey first = paged_key(params, sequence, 0);
    return in_pool(params, first) ? first.page : -1;
}

/// What O is multiplied by: the mantissa, from 1 to 2, of the scale that the first value of a sequence has. P is multiplied by scales
/// over it. So where all values of a row have one scale, P is rounded as if there were none: a P of 1 stays 1.
struct CacheScales {
    float of_out = 1;

    template <class Params>
    __device__ __forceinline__ CacheScales(const Params& params, int sequence, int kv_head, int kv_len) {
        if (params.v_scale == nullptr) return;
        const long long row = first_scale_row(params, sequence, kv_len);
        if (row < 0) return;
        const float scale = __ldg(params.v_scale + row * params.v_scale_stride_row + kv_head * params.v_scale_stride_head);
        of_out = __uint_as_float(__float_as_uint(scale) & 0x007fffff | 0x3f800000);
    }
};

/// What is known of a cache while a block goes over it.
struct CacheState {
    float factor, of_out;   // of products with keys, and of O
    float inverse_mantissa;  // 1 / of_out
    ProbsRange range;

    /// `query_factor`: see take_queries.
    __device__ __forceinline__ void begin(const CacheScales& scales, float query_factor) {
        factor = uniform_float(query_factor);
        of_out = uniform_float(scales.of_out);
        inverse_mantissa = fast_reciprocal(of_out);
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

    /// Makes products of numbers those of keys: multiplies columns of S.
    template <class KTile, int M_TILES, int N_TILES>
    __device__ __forceinline__ void scale(float (&scores)[M_TILES][N_TILES][4], unsigned keys) const {
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) {
            const float2 of_keys = load_float2(keys + KTile::SCALES + threadIdx.x % 4 * 8 + 32 * n);
            const float factors[2] = {of_keys.x * factor, of_keys.y * factor};
#pragma unroll
            for (int i = 0; i < 4 * M_TILES; ++i) scores[i / 4][n][i % 4] *= factors[i % 2];
        }
    }

    /// Multiplies P of column tile n.
    template <class VTile>
    __device__ __forceinline__ void scale_probs(float (&x)[4], unsigned values, int n) const {
        const float2 of_values = load_float2(values + VTile::SCALES + threadIdx.x % 4 * 8 + 32 * n);
        const float factors[2] = {over_mantissa(of_values.x), over_mantissa(of_values.y)};
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] *= factors[i % 2];
    }

private:
    /// scale / of_out, exactly where it is a power of two.
    __device__ __forceinline__ float over_mantissa(float scale) const {
        const unsigned bits = __float_as_uint(scale);
        const bool same = ((bits ^ __float_as_uint(of_out)) & 0x007fffff) == 0 && scale == scale;
        return same ? __uint_as_float(bits & 0xff800000) : scale * inverse_mantissa;
    }
};

/// Copies a float, or writes 0 without reading where `exists` is false; nothing where it isn't `wanted`. No branch, as in store_word_if.
__device__ __forceinline__ void copy_float_if(unsigned target, const float* source, bool exists, bool wanted) {
    asm volatile("{\n.reg .pred wanted;\nsetp.ne.u32 wanted, %3, 0;\n@wanted cp.async.ca.shared.global [%0], [%1], 4, %2;\n}" ::"r"(target),
                 "l"(source), "r"(exists ? 4 : 0), "r"((unsigned)wanted));
}

__device__ __forceinline__ void store_word_if(unsigned address, unsigned word, bool wanted) {
    asm volatile("{\n.reg .pred wanted;\nsetp.ne.u32 wanted, %2, 0;\n@wanted st.shared.b32 [%0], %1;\n}" ::"r"(address), "r"(word),
                 "r"((unsigned)wanted)
                 : "memory");
}

/// The rows of k, or of v, of one head, and their scales. `scale_stride` counts floats from page to page: 0 where all pages of a
/// sequence have one. Without scales all are 1.
struct ScaledRows {
    PagedRows rows;
    const float* scales;
    long long scale_stride;

    /// As PagedRows::load. The scale of a row is brought by the lane that has looked it up.
    template <class Tile, int VALID_BYTES, class Places>
    __device__ __forceinline__ void load(unsigned tile, const Places& places, int first) const {
#pragma unroll
        for (int i = 0; i < Places::LOOK_UPS; ++i) {
            const PagedKey& key = places.keys[i];
            const int row = Places::Shares::own(i) - (first - places.first);
            const bool wanted = Places::Shares::some() && (unsigned)row < (unsigned)Tile::ROWS;
            const unsigned target = tile + Tile::SCALES + 4 * row;
            copy_float_if(target, scales + (unsigned)key.page * scale_stride, key.page >= 0, wanted && scales != nullptr);
            store_word_if(target, 0x3f800000, wanted && scales == nullptr);
        }
        rows.load<Tile, VALID_BYTES>(tile, places, first);
    }
};

/// The keys and values of one head of one sequence in a pool of pages. The interface is that of cache_rows.cuh; `places` says whose
/// tile is loaded.
template <class Places>
struct CachePages {
    Places places;
    ScaledRows keys, values;
    int kv_len;

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int) const {
        keys.load<Tile, BYTES / 2>(target, places, first);
    }

    template <class Tile, class Order, int THREADS, int BYTES>
    __device__ __forceinline__ void load_values(unsigned target, int first, int) const {
        values.load<Tile, BYTES / 2>(target, places, first);
    }
};
