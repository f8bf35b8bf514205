#include "memory/words.cuh"
#include "quantized_kv/fp16_products.cuh"

/// Sixteen columns of a row of Q, two chunks of its tile.
template <class QTile>
struct QueryGroup {
    static constexpr int COUNT = QTile::CHUNKS / 2;  // of a row

    unsigned first, second;  // where the chunks are

    __device__ __forceinline__ QueryGroup(unsigned queries, int index)
        : first(QTile::place(queries, index / COUNT, index % COUNT * 2).address),
          second(QTile::place(queries, index / COUNT, index % COUNT * 2 + 1).address) {}

    __device__ __forceinline__ void load(unsigned (&low)[4], unsigned (&high)[4]) const {
        load_words(first, low);
        load_words(second, high);
    }

    __device__ __forceinline__ void store(const unsigned (&low)[4], const unsigned (&high)[4]) const {
        store_words(first, low);
        store_words(second, high);
    }
};

/// |x|, or 0 where that is no number.
__device__ __forceinline__ float finite_size(float x) { return fabsf(x) < -NEGATIVE_INFINITY ? fabsf(x) : 0.0f; }

/// The largest finite |x| of the first `rows` rows of a tile: each warp looks at all of them.
template <class Dtype, class QTile>
__device__ __forceinline__ float largest_query(unsigned queries, int rows) {
    using Group = QueryGroup<QTile>;
    float top = 0;
#pragma unroll 1
    for (int index = threadIdx.x % 32; index < rows * Group::COUNT; index += 32) {
        unsigned low[4], high[4];
        Group(queries, index).load(low, high);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            top = fmaxf(top, fmaxf(finite_size(Dtype::low(low[i])), finite_size(Dtype::high(low[i]))));
            top = fmaxf(top, fmaxf(finite_size(Dtype::low(high[i])), finite_size(Dtype::high(high[i]))));
        }
    }
    return warp_max(top);
}

/// Makes the first `rows` rows of a tile of Q, which has come, fp16 to be multiplied by keys of 8 bits; the others are zeros. All
/// THREADS threads take part. Numbers are multiplied by a power of two, so that the largest is near the end of fp16's range:
/// products are to be multiplied by the factor returned. What is 2^31 times smaller than the largest loses bits by it. The sign of
/// `scale`, and zero, go to Q too (see take_sign). Of 16 columns the first chunk gets 0, 1, 4, 5, ..., the second 2, 3, 6, 7, ...:
/// ldmatrix brings a lane four neighbours of K in a word.
template <class Dtype, class QTile, int THREADS>
__device__ __forceinline__ float take_queries(unsigned queries, int rows, float scale) {
    constexpr unsigned LARGEST = 14;  // its exponent
    using Group = QueryGroup<QTile>;
    const unsigned exponent = __float_as_uint(fmaxf(largest_query<Dtype, QTile>(queries, rows), 0x1p-100f)) & 0x7f800000;
    const float power = __uint_as_float((2 * 127 + LARGEST << 23) - exponent), factor = scale < 0 ? -power : power;
    __syncthreads();  // all have seen all
#pragma unroll 1
    for (int index = threadIdx.x; index < rows * Group::COUNT; index += THREADS) {
        const Group group(queries, index);
        unsigned low[4], high[4], words[8];
        group.load(low, high);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const unsigned word = i < 4 ? low[i % 4] : high[i % 4];
            words[i] = scale == 0 ? 0 : pack_fp16(Dtype::low(word) * factor, Dtype::high(word) * factor);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) low[i] = words[2 * i], high[i] = words[2 * i + 1];
        group.store(low, high);
    }
    __syncthreads();
    return __uint_as_float(exponent - (LARGEST << 23));
}

/// What the scale leaves to multiply by once its sign, or zero, is in Q.
__device__ __forceinline__ float positive_scale(float scale) { return scale == 0 ? 1 : scale < 0 ? -scale : scale; }
