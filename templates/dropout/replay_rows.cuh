#include "dropout/philox.cuh"

/// Which pairs dropout kept, where the lanes of a warp hold rows of S (philox.cuh says whose bits are whose). A tile has KEYS
/// keys: where these aren't whole blocks of 32, each call of the generator serves two fragments, not four.
template <int M_TILES, int KEYS>
struct Replay {
    static constexpr int SERVED = KEYS % 32 == 0 ? 4 : 2;

    uint2 key;
    unsigned threshold;
    int pair, q_block, kv_block;  // q_block: of the warp's first row, in blocks of 16; kv_block: of the tile, of 8 * SERVED
    uint4 words[M_TILES];
    unsigned word[M_TILES];  // of the fragments in hand

    __device__ __forceinline__ void begin(unsigned long long seed, unsigned threshold, int pair, int q_first) {
        key = make_uint2((unsigned)seed, (unsigned)(seed >> 32));
        this->threshold = threshold;
        this->pair = pair;
        q_block = uniform(q_first / 16);
    }

    /// After `begin`, where q_idx 0 isn't the sequence's first query: `place`, a multiple of 16, is where it is.
    __device__ __forceinline__ void move_rows(int place) { q_block += uniform(place / 16); }

    __device__ __forceinline__ void begin_tile(int kv_first) { kv_block = kv_first / (8 * SERVED); }

    /// Fragments (m, n), for all m. n grows by one from call to call.
    __device__ __forceinline__ void begin_columns(int n) {
        const int block = kv_block + n / SERVED;
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            uint4& four = words[m];
            if (n % SERVED == 0)
                four = philox4x32_7(make_uint4(block * SERVED / 4, q_block + m, pair, threadIdx.x % 32), key);
            const bool later = n % SERVED >= 2 || (SERVED == 2 && block % 2 != 0);
            word[m] = later ? (n % 2 == 0 ? four.z : four.w) : (n % 2 == 0 ? four.x : four.y);
        }
    }

    __device__ __forceinline__ bool keeps(int m, int, int r, int side) const {
        return (word[m] >> 8 * (r + 2 * side) & 255) < threshold;
    }
};
