#include "dropout/philox_words.cuh"

/// Clears the probabilities that dropout drops: those whose byte is not below the threshold.
template <int M_TILES>
struct Dropout {
    uint2 key;
    unsigned threshold;  // 1..256; the keep rate is threshold / 256
    int pair;            // b * num_heads + h
    int q_block;         // of the warp's first row, in blocks of 16
    int kv_block;        // of the tile's first column, in blocks of 32
    uint4 words[M_TILES];

    __device__ __forceinline__ void begin_rows(unsigned long long seed, unsigned threshold, int pair, int q_first) {
        key = make_uint2(uniform((int)seed), uniform((int)(seed >> 32)));
        this->threshold = threshold;
        this->pair = pair;
        q_block = uniform(q_first / 16);
    }

    /// Where q_idx 0 isn't the sequence's first query: `place`, a multiple of 16, is where it is.
    __device__ __forceinline__ void move_rows(int place) { q_block += uniform(place / 16); }

    __device__ __forceinline__ void begin_tile(int kv_first) {
        kv_block = kv_first / 32;
        q_block = opaque(q_block);
        pair = opaque(pair);
    }

    __device__ __forceinline__ float scale() const { return kept_scale(threshold); }

    /// The word of fragment (m, n); a lane's number is that of its row and column within 8 x 8.
    __device__ __forceinline__ unsigned word(int m, int n) {
        if (n % 4 == 0) words[m] = philox4x32_7(make_uint4(kv_block + n / 4, q_block + m, pair, threadIdx.x % 32), key);
        return n % 4 == 0 ? words[m].x : n % 4 == 1 ? words[m].y : n % 4 == 2 ? words[m].z : words[m].w;
    }

    /// 16-bit probabilities of fragments (m, n) and (m, n + 1), packed by columns: rows 0 and 1 of the one, then the other.
    __device__ __forceinline__ void drop(unsigned (&probs)[4], int m, int n) {
        const unsigned bits[2] = {word(m, n), word(m, n + 1)};
#pragma unroll
        for (int i = 0; i < 4; ++i) probs[i] &= ~dropped_halves(bits[i / 2], i % 2, threshold);
    }

    /// Those of a warp with 16 rows, of the tile that begins at kv_first.
    template <int STEPS>
    __device__ __forceinline__ void drop(unsigned (&probs)[STEPS][4], int kv_first) {
        begin_tile(kv_first);
#pragma unroll
        for (int step = 0; step < STEPS; ++step) drop(probs[step], 0, 2 * step);
    }

    /// fp32 probabilities of fragment (m, n).
    __device__ __forceinline__ void drop(float (&probs)[4], int m, int n) {
        const unsigned bits = word(m, n);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if ((bits >> 8 * (i / 2 + 2 * (i % 2)) & 255) >= threshold) probs[i] = 0;
    }
};
