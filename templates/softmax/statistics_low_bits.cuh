#include "common/math.cuh"
#include "memory/shared_floats.cuh"
#include "common/two_sum.cuh"

/// Of a row: lse, infinite for a row without weight, and delta; and what is to be added to lse, which was rounded to fp32 at its
/// own size. As often as not that is more than all other roundings of a probability, and the same for the whole row.
struct alignas(16) RowStatistics {
    float exponent, delta, low_bits, padding;

    /// As the first of the kernels that need it takes it: the low bits aren't known yet.
    __device__ __forceinline__ RowStatistics at_first() const { return {exponent, delta, 0, 0}; }

    /// The probability of a pair, 0 of one that isn't kept, of the exponent and of what it loses by rounding. `low_bits_of_score`:
    /// what the score has lost.
    template <class Dtype>
    __device__ __forceinline__ float prob(bool kept, float score, float factor, float low_bits_of_score) const {
        const float x = kept ? fmaf(score, factor, -exponent) : NEGATIVE_INFINITY, power = Dtype::power(x);
        float sum = x, lost = 0;
        add_exactly(sum, lost, exponent);
        const float all_low_bits = fmaf(score, factor, -sum) - lost + fmaf(low_bits_of_score, factor, -low_bits);
        return fmaf(power, fabsf(all_low_bits) < 1 ? all_low_bits : 0.0f, power);  // not a number where nothing weighs
    }
};

/// From shared memory.
__device__ __forceinline__ RowStatistics load_row(unsigned address) {
    const float4 row = load_float4(address);
    return {row.x, row.y, row.z, 0};
}

/// Two rows that lie side by side, from shared memory.
__device__ __forceinline__ void load_rows(RowStatistics (&rows)[2], unsigned address) {
    rows[0] = load_row(address), rows[1] = load_row(address + sizeof(RowStatistics));
}

template <class Dtype>
struct Statistics {
    static __device__ __forceinline__ void store(float* statistics, long long row, float lse, float delta) {
        ((RowStatistics*)statistics)[row] = {lse == NEGATIVE_INFINITY ? -NEGATIVE_INFINITY : lse, delta, 0, 0};
    }

    /// lse, infinite for a row without weight, and delta.
    static __device__ __forceinline__ float2 load(const float* statistics, long long row) {
        const RowStatistics x = ((const RowStatistics*)statistics)[row];
        return make_float2(x.exponent, x.delta);
    }
};

/// The sums of the probabilities of a lane's rows, exact to about 2^-40. A row's is 1, but for the roundings of lse.
template <int M_TILES>
struct RowWeights {
    float sum[M_TILES][2] = {}, lost[M_TILES][2] = {};

    __device__ __forceinline__ void add(int m, int r, float prob) { add_exactly(sum[m][r], lost[m][r], prob); }

    /// By how much a row's sum is above 1 since lse was rounded: what was made of its probabilities is too large by so much. 0 where
    /// no rounding explains it: a sink has what is missing, or keys that this call doesn't know. `lse` is as it was given; all
    /// lanes of the quad must call.
    __device__ __forceinline__ float excess(int m, int r, float lse) const {
        float whole = sum[m][r], low_bits = lost[m][r];
#pragma unroll
        for (int step = 1; step < 4; step *= 2) {
            low_bits += __shfl_xor_sync(~0u, low_bits, step);
            add_exactly(whole, low_bits, __shfl_xor_sync(~0u, whole, step));
        }
        const float found = whole - 1 + low_bits;
        return fabsf(found) <= 0x1p-22f * (8 + fabsf(lse)) ? found : 0.0f;
    }

    /// For the kernels behind, which take it from their probabilities, too.
    __device__ __forceinline__ void tell(RowStatistics& row, float excess) const {
        if (threadIdx.x % 4 == 0) row.low_bits = excess;
    }
};
