#include "common/math.cuh"
#include "memory/shared_floats.cuh"

/// Of a row: lse as an exponent, infinite for a row without weight, and delta.
struct alignas(8) RowStatistics {
    float exponent, delta;

    __device__ __forceinline__ const RowStatistics& at_first() const { return *this; }

    /// The probability of a pair, 0 of one that isn't kept. `low_bits`: what the rounding of the score took from it, which is
    /// nothing to the operands of P V.
    template <class Dtype>
    __device__ __forceinline__ float prob(bool kept, float score, float factor, [[maybe_unused]] float low_bits) const {
        return Dtype::power(kept ? fmaf(score, factor, -exponent) : NEGATIVE_INFINITY);
    }
};

/// From shared memory.
__device__ __forceinline__ RowStatistics load_row(unsigned address) {
    const float2 row = load_float2(address);
    return {row.x, row.y};
}

/// Two rows that lie side by side, from shared memory.
__device__ __forceinline__ void load_rows(RowStatistics (&rows)[2], unsigned address) {
    const float4 both = load_float4(address);
    rows[0] = {both.x, both.y}, rows[1] = {both.z, both.w};
}

template <class Dtype>
struct Statistics {
    static __device__ __forceinline__ void store(float* statistics, long long row, float lse, float delta) {
        const float exponent = lse == NEGATIVE_INFINITY ? -NEGATIVE_INFINITY : lse * Dtype::UNIT;
        ((RowStatistics*)statistics)[row] = {exponent, delta};
    }

    /// lse, infinite for a row without weight, and delta.
    static __device__ __forceinline__ float2 load(const float* statistics, long long row) {
        const RowStatistics x = ((const RowStatistics*)statistics)[row];
        return make_float2(x.exponent * Dtype::NATURAL, x.delta);
    }
};

/// Probabilities have the weight that lse gives them.
template <int M_TILES>
struct RowWeights {
    __device__ __forceinline__ void add(int, int, float) {}
    __device__ __forceinline__ float excess(int, int, float) const { return 0; }
    __device__ __forceinline__ void tell(RowStatistics&, float) const {}
};
