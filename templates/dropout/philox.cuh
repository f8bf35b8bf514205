#include "common/math.cuh"

// Dropout bits belong to a (batch, head, q_idx, kv_idx) pair, so that every tiling draws the same: Philox4x32 with 7 rounds
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A call serves the 16 pairs that a lane holds
// in four neighbouring m16n8 fragments: one word a fragment, in it byte (row / 8) + 2 * (column % 2).

/// All 64 bits of a * b, in one instruction. In C the compiler adds products of the operands' upper halves, which are 0.
__device__ __forceinline__ unsigned long long wide_product(unsigned a, unsigned b) {
    unsigned long long product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
}

__device__ __forceinline__ uint4 philox4x32_7(uint4 counter, uint2 key) {
#pragma unroll
    for (int round = 0; round < 7; ++round) {
        const unsigned long long a = wide_product(counter.x, 0xD2511F53u);
        const unsigned long long b = wide_product(counter.z, 0xCD9E8D57u);
        counter = make_uint4((unsigned)(b >> 32) ^ counter.y ^ key.x, (unsigned)b,
                             (unsigned)(a >> 32) ^ counter.w ^ key.y, (unsigned)a);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

/// Each half of a word becomes 0xffff or 0: whether that half of a is not below that of b. Both are below 2^10: as fp16 they
/// are in the same order, and hardware compares these in pairs.
__device__ __forceinline__ unsigned not_below(unsigned a, unsigned b) {
    unsigned mask;
    asm("set.ge.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
    return mask;
}

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

    __device__ __forceinline__ void begin_tile(int kv_first) {
        kv_block = kv_first / 32;
        q_block = opaque(q_block);
        pair = opaque(pair);
    }

    /// What makes up for the dropped: the reciprocal of the actual keep rate.
    __device__ __forceinline__ float scale() const { return 256 * normal_reciprocal(threshold); }

    /// The word of fragment (m, n); a lane's number is that of its row and column within 8 x 8.
    __device__ __forceinline__ unsigned word(int m, int n) {
        if (n % 4 == 0) words[m] = philox4x32_7(make_uint4(kv_block + n / 4, q_block + m, pair, threadIdx.x % 32), key);
        return n % 4 == 0 ? words[m].x : n % 4 == 1 ? words[m].y : n % 4 == 2 ? words[m].z : words[m].w;
    }

    /// 0xffff in each half of the word whose column is dropped, for row r of the fragment.
    __device__ __forceinline__ unsigned dropped(unsigned word, int r) {
        return not_below(__byte_perm(word, 0, r == 0 ? 0x4240 : 0x4341), threshold * 0x10001u);
    }

    /// 16-bit probabilities of fragments (m, n) and (m, n + 1), packed by columns: rows 0 and 1 of the one, then the other.
    __device__ __forceinline__ void drop(unsigned (&probs)[4], int m, int n) {
        const unsigned bits[2] = {word(m, n), word(m, n + 1)};
#pragma unroll
        for (int i = 0; i < 4; ++i) probs[i] &= ~dropped(bits[i / 2], i % 2);
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
