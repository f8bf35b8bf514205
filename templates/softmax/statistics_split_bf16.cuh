#include "common/element.cuh"
#include "common/math.cuh"
#include "memory/words.cuh"

// What the backward pass knows of a row of Q, lse and delta, as operands of wgmma. A broadcast load from shared memory costs
// each warp a cycle a value; a product with ones costs one k-step. So S and dP get a ninth: rows of B are -lse and -delta in
// parts of 16 bits, together as exact as fp32, and A picks one of them.

/// Eight 16-bit numbers for a row: -lse in parts 0 to 2 and 6, which repeats 0; -delta in parts 3 to 5. They are finite, since
/// those that A doesn't pick meet its zeros. Of a row without weight (lse -inf) they make all
/// probabilities 0.
template <class Dtype>
struct Statistics {
    static constexpr int FLOATS = 4, ROW_BYTES = 4 * FLOATS;
    static constexpr int WEIGHT_BYTES = 256;  // of an A operand: 8 rows, which serve all 64, of columns 0 to 7 and 8 to 15

    struct SplitBf16 {
        float first, second, third;

        __device__ __forceinline__ explicit SplitBf16(float x) {
            first = Dtype::low(Dtype::pack(x, 0));
            second = Dtype::low(Dtype::pack(x - first, 0));
            third = x - first - second;
        }
    };

    static __device__ __forceinline__ void store(float* statistics, long long row, float lse, float delta) {
        const SplitBf16 minus_lse(lse == NEGATIVE_INFINITY ? -Dtype::NO_WEIGHT : -lse), minus_delta(-delta);
        *(uint4*)(statistics + 4 * row) =
            make_uint4(Dtype::pack(minus_lse.first, minus_lse.second), Dtype::pack(minus_lse.third, minus_delta.first),
                       Dtype::pack(minus_delta.second, minus_delta.third), Dtype::pack(minus_lse.first, 0));
    }

    /// lse, beyond all scores for a row without weight, and delta.
    static __device__ __forceinline__ float2 load(const float* statistics, long long row) {
        const uint4 x = *(const uint4*)(statistics + 4 * row);
        return make_float2(-(Dtype::low(x.x) + Dtype::low(x.x >> 16) + Dtype::low(x.y)),
                           -(Dtype::low(x.y >> 16) + Dtype::low(x.z) + Dtype::low(x.z >> 16)));
    }

    /// Writes two A operands behind each other, of 64 words each: their products with a row are -lse * lse_weight and
    /// -delta * delta_weight, the latter a number of 8 bits. The row's eight numbers are columns 0 to 7 and again 8 to 15: so two
    /// parts of lse_weight meet all of -lse, and the third its first part. The threads of a warpgroup call.
    static __device__ __forceinline__ void write_weights(unsigned target, float lse_weight, float delta_weight) {
        const SplitBf16 parts(lse_weight);
        const int thread = thread_index() % 128, word = thread % 4;
        const bool delta = thread >= 64, later = thread % 64 >= 32;
        const float part = delta ? 0 : later ? parts.second : parts.first;
        const float delta_part = delta & !later ? delta_weight : 0, third = delta | later ? 0 : parts.third;
        const float low = word == 0 | word == 1 ? part : word == 2 ? delta_part : third;
        const float high = word == 0 ? part : word == 1 | word == 2 ? delta_part : 0;
        store_word(target + 4 * thread, Dtype::pack(low, high));
    }
};

/// Descriptor of rows as B operand: eight of them each 128 bytes, no swizzle; columns 8 to 15 are columns 0 to 7 again.
__device__ __forceinline__ unsigned long long statistics_descriptor(unsigned address) {
    return (unsigned long long)(128 >> 4) << 32 | (address & 0x3ffff) >> 4;
}

/// Descriptor of an A operand of weights: one group of eight rows for all 64; columns 8 to 15 follow 128 bytes behind.
__device__ __forceinline__ unsigned long long weights_descriptor(unsigned address) {
    return 128 >> 4 << 16 | (address & 0x3ffff) >> 4;
}
