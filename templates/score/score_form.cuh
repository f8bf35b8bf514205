#include "common/math.cuh"

// Score lines of whole tiles as product * factor + bias.

/// What multiplies a product: term[0] + term[1] product^2 + ..., while |product| <= reach; a constant always holds.
template <int TERMS>
struct ScoreFactor {
    float term[TERMS];
    float reach;

    __device__ __forceinline__ ScoreFactor times(float unit) const {
        ScoreFactor scaled = *this;
#pragma unroll
        for (int i = 0; i < TERMS; ++i) scaled.term[i] *= unit;
        return scaled;
    }

    __device__ __forceinline__ float at(float product) const {
        float sum = term[TERMS - 1];
#pragma unroll
        for (int i = TERMS - 2; i >= 0; --i) sum = fmaf(sum, product * product, term[i]);
        return sum;
    }

    /// Whether it holds for all products of the warp, judged by sums of two neighbours: an addition takes half the time of
    /// a maximum, and both can take absolute values.
    template <int M_TILES, int N_TILES>
    __device__ __forceinline__ bool holds(const float (&products)[M_TILES][N_TILES][4]) const {
        if constexpr (TERMS == 1) return true;
        int peak[2] = {};
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int n = 0; n < N_TILES; ++n) {
                const float(&x)[4] = products[m][n];
                peak[n % 2] = max(max(peak[n % 2], size(x[0], x[1])), size(x[2], x[3]));
            }
        return __all_sync(~0u, max(peak[0], peak[1]) <= __float_as_int(reach));
    }

private:
    /// At least the absolute value of both. As ints, positive floats are in order, below NaN; Hopper compares three at once.
    static __device__ __forceinline__ int size(float x, float y) { return __float_as_int(fabsf(x) + fabsf(y)); }
};

/// The largest |product| for which |argument * product| <= reach; none (-1) where powers of the argument leave fp32.
__device__ __forceinline__ float product_reach(float argument, float reach) {
    const float size = fabsf(argument);
    return (size >= 0x1p-20f) & (size <= 0x1p20f) ? reach * normal_reciprocal(size) : -1.0f;
}

/// What is added to the scores of a row: the same for all keys.
struct RowBias {
    float first;

    /// The same as an exponent, `unit` of them in a natural unit, added to `offset`.
    __device__ __forceinline__ RowBias exponent(float unit, float offset) const { return {fmaf(first, unit, offset)}; }

    /// What is added `columns` keys behind the first.
    __device__ __forceinline__ float at(int columns) const { return first; }

    /// The same, computed no later than here.
    __device__ __forceinline__ RowBias pinned() const { return {opaque_float(first)}; }
};

/// The interface of RowBias; affine in the key.
struct SlopedBias {
    float first, step;

    __device__ __forceinline__ SlopedBias exponent(float unit, float offset) const {
        return {fmaf(first, unit, offset), step * unit};
    }

    __device__ __forceinline__ float at(int columns) const { return fmaf(step, columns, first); }

    __device__ __forceinline__ SlopedBias pinned() const { return {opaque_float(first), step}; }

    /// The greatest of what is added up to `columns` keys behind the first.
    __device__ __forceinline__ float highest(int columns) const { return fmaxf(first, at(columns)); }
};

/// The interface of RowBias; of degree two in the key.
struct CurvedBias {
    float first, step, curve;

    __device__ __forceinline__ CurvedBias exponent(float unit, float offset) const {
        return {fmaf(first, unit, offset), step * unit, curve * unit};
    }

    __device__ __forceinline__ float at(float columns) const { return fmaf(fmaf(curve, columns, step), columns, first); }

    __device__ __forceinline__ CurvedBias pinned() const { return {opaque_float(first), step, curve}; }

    __device__ __forceinline__ float highest(int columns) const {
        const float vertex = fminf(fmaxf(-0.5f * step * fast_reciprocal(curve), 0.0f), columns);  // without one, either end
        return fmaxf(fmaxf(first, at(columns)), at(vertex));
    }
};

/// The products of one row of a lane, half r of a row tile, to exponents; `bias` is that of its first key.
template <class KvOrder, int N_TILES, class Factor, class Bias>
__device__ __forceinline__ void row_to_exponents(float (&products)[N_TILES][4], int r, const Factor& factor, const Bias& bias) {
    const int lane_column = threadIdx.x % 4 * 2, first = KvOrder::offset(lane_column);
#pragma unroll
    for (int i = 0; i < 2 * N_TILES; ++i) {
        float& x = products[i / 2][2 * r + i % 2];
        x = fmaf(x, factor.at(x), bias.at(KvOrder::offset(lane_column + 8 * (i / 2) + i % 2) - first));
    }
}
