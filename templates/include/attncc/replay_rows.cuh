#include "attncc/philox.cuh"

/// Which pairs dropout kept, where the lanes of a warp hold rows of S (philox.cuh says whose bits are whose).
template <int M_TILES>
struct Replay {
    uint2 key;
    unsigned threshold;
    int pair, q_block, kv_block;  // q_block: of the warp's first row, in blocks of 16; kv_block: of the tile, of 32
    uint4 words[M_TILES];
    unsigned word[M_TILES];  // of the fragments in hand

    __device__ __forceinline__ void begin(unsigned long long seed, unsigned threshold, int pair, int q_first) {
        key = make_uint2((unsigned)seed, (unsigned)(seed >> 32));
        this->threshold = threshold;
        this->pair = pair;
        q_block = uniform(q_first / 16);
    }

    __device__ __forceinline__ void begin_tile(int kv_first) { kv_block = kv_first / 32; }

    /// Fragments (m, n), for all m. n grows by one from call to call.
    __device__ __forceinline__ void begin_columns(int n) {
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            uint4& four = words[m];
            if (n % 4 == 0)
                four = philox4x32_7(make_uint4(kv_block + n / 4, q_block + m, pair, threadIdx.x % 32), key);
            word[m] = n % 4 == 0 ? four.x : n % 4 == 1 ? four.y : n % 4 == 2 ? four.z : four.w;
        }
    }

    __device__ __forceinline__ bool keeps(int m, int, int r, int side) const {
        return (word[m] >> 8 * (r + 2 * side) & 255) < threshold;
    }
};
