#include "dropout/philox.cuh"

/// Which pairs dropout kept, where the lanes of a warp hold rows of S^T: of 16 queries and 32 keys a lane holds those of one
/// key in eight. The bits of two lanes that differ in the lowest bit of their key come from the same two calls of the
/// generator, so each makes one, for the queries of one parity, and they exchange halves.
template <int M_TILES, int KEYS>
struct Replay {
    static constexpr int KEY_BLOCKS = (M_TILES + 1) / 2;  // of 32 keys, the warp's

    uint2 key;
    unsigned threshold;
    int pair, q_block, kv_first;  // q_block: of the tile, in blocks of 16; kv_first: of the warp's keys
    unsigned bits[M_TILES][2];    // by the parity of the query; a half for each half of 16 keys, in it a byte for 8 queries

    __device__ __forceinline__ void begin(unsigned long long seed, unsigned threshold, int pair, int kv_first) {
        key = make_uint2((unsigned)seed, (unsigned)(seed >> 32));
        this->threshold = threshold;
        this->pair = pair;
        this->kv_first = uniform(kv_first);
    }

    __device__ __forceinline__ void begin_tile(int q_first) { q_block = q_first / 16; }

    /// After `begin_tile`, where q_idx 0 isn't the sequence's first query: `place`, a multiple of 16, is where it is.
    __device__ __forceinline__ void move_rows(int place) { q_block += place / 16; }

    /// Fragments (m, n), for all m. n grows by one from call to call.
    __device__ __forceinline__ void begin_columns(int n) {
        if (n % 2 != 0) return;
        const int lane = threadIdx.x % 32, parity = lane / 4 % 2;
        const unsigned number = (lane % 4 * 2 + parity) * 4 + lane / 8;  // of the row and column within 8 x 8
#pragma unroll
        for (int block = 0; block < KEY_BLOCKS; ++block) {
            const uint4 four = philox4x32_7(make_uint4(kv_first / 32 + block, q_block + n / 2, pair, number), key);
            if (M_TILES == 1) {
                const bool later = kv_first % 32 != 0;
                exchange(later ? four.z : four.x, later ? four.w : four.y, parity, bits[0]);
            } else {
                exchange(four.x, four.y, parity, bits[2 * block]);
                exchange(four.z, four.w, parity, bits[(2 * block + 1) % M_TILES]);
            }
        }
    }

    __device__ __forceinline__ bool keeps(int m, int n, int r, int side) const {
        return ((side == 0 ? bits[m][0] : bits[m][1]) >> (16 * r + 8 * (n % 2)) & 255) < threshold;
    }

private:
    /// From the words of the upper and the lower 8 keys of a fragment, the bytes of this lane's key, for both parities.
    static __device__ __forceinline__ void exchange(unsigned upper, unsigned lower, int parity, unsigned (&bits)[2]) {
        const unsigned even = __byte_perm(upper, lower, 0x5410), odd = __byte_perm(upper, lower, 0x7632);
        const unsigned mine = parity == 0 ? even : odd;
        const unsigned other = __shfl_xor_sync(~0u, parity == 0 ? odd : even, 4);
        bits[0] = parity == 0 ? mine : other;
        bits[1] = parity == 0 ? other : mine;
    }
};
