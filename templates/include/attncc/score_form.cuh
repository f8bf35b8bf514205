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

    /// Whether it holds for all products of the warp.
    template <int M_TILES, int N_TILES>
    __device__ __forceinline__ bool holds(const float (&products)[M_TILES][N_TILES][4]) const {
        if constexpr (TERMS == 1) return true;
        float peak[4] = {};
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int i = 0; i < 4 * N_TILES; ++i) peak[i % 4] = fmaxf(peak[i % 4], fabsf(products[m][i / 4][i % 4]));
        return __all_sync(~0u, fmaxf(fmaxf(peak[0], peak[1]), fmaxf(peak[2], peak[3])) <= reach);
    }
};

/// The largest |product| for which |argument * product| <= reach; none (-1) where powers of the argument leave fp32.
__device__ __forceinline__ float product_reach(float argument, float reach) {
    const float size = fabsf(argument);
    return (size >= 0x1p-20f) & (size <= 0x1p20f) ? reach / size : -1.0f;
}

/// What is added to the scores of a row: the same for all keys.
struct RowBias {
    float first;

    /// The same as an exponent, `unit` of them in a natural unit, added to `offset`.
    __device__ __forceinline__ RowBias exponent(float unit, float offset) const { return {fmaf(first, unit, offset)}; }

    /// What is added `columns` keys behind the first.
    __device__ __forceinline__ float at(int columns) const { return first; }
};

/// The interface of RowBias; affine in the key.
struct SlopedBias {
    float first, step;

    __device__ __forceinline__ SlopedBias exponent(float unit, float offset) const {
        return {fmaf(first, unit, offset), step * unit};
    }

    __device__ __forceinline__ float at(int columns) const { return fmaf(step, columns, first); }
};
