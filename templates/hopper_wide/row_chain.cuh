#include "common/math.cuh"

/// What warpgroups tell each other of the rows of a tile of Q, with P of each tile: m and l, which both have then, and by what m's
/// change multiplies O. Threads with the same number in either warpgroup have the same rows, and the same share of l. The two
/// write by turns, each when it has read.
struct RowChain {
    static constexpr int FLOATS = 2 * 64 + 128 * 2 + 4;

    float *offsets, *factors;  // [row], where m has moved
    float* sums;               // [thread, half]
    int* words;                // [warp]: the first key of the tile, and whether m has moved

    __device__ __forceinline__ explicit RowChain(float* shared)
        : offsets(shared), factors(shared + 64), sums(shared + 128), words((int*)(shared + 128 + 256)) {}

    /// Without maxima and sums there is the tile's first key alone.
    template <bool HAS_MAX, class Normalizer>
    __device__ __forceinline__ void put(const Normalizer& normalizer, int kv_first, bool moved, const float (&rescale)[1][1][4]) const {
        const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
        if (lane == 0) words[thread / 32] = kv_first | moved;
        if constexpr (HAS_MAX) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                sums[2 * thread + r] = normalizer.row_sum[0][r];
                if (!moved || lane % 4 != 0) continue;
                offsets[row(r)] = normalizer.offset[0][r];
                factors[row(r)] = rescale[0][0][2 * r];
            }
        }
    }

    /// Returns the tile's first key.
    template <bool HAS_MAX, class Normalizer, int D_TILES>
    __device__ __forceinline__ int take(Normalizer& normalizer, float (&out)[1][D_TILES][4]) const {
        const int word = uniform(words[threadIdx.x % 128 / 32]);
        if constexpr (HAS_MAX) {
#pragma unroll
            for (int r = 0; r < 2; ++r) normalizer.row_sum[0][r] = sums[2 * (threadIdx.x % 128) + r];
            if (__any_sync(~0u, word & 1)) {
                float factor[2];
#pragma unroll
                for (int r = 0; r < 2; ++r) normalizer.offset[0][r] = offsets[row(r)], factor[r] = factors[row(r)];
#pragma unroll
                for (int i = 0; i < 4 * D_TILES; ++i) out[0][i / 4][i % 4] *= factor[i % 4 / 2];
            }
        }
        __syncwarp();  // all lanes have read
        return word & ~1;
    }

private:
    static __device__ __forceinline__ int row(int r) { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * r; }
};
