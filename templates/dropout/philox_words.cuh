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

/// 0xffff in each half of the word whose column is dropped, for row r of the fragment.
__device__ __forceinline__ unsigned dropped_halves(unsigned word, int r, unsigned threshold) {
    return not_below(__byte_perm(word, 0, r == 0 ? 0x4240 : 0x4341), threshold * 0x10001u);
}

/// What makes up for the dropped: the reciprocal of the actual keep rate.
__device__ __forceinline__ float kept_scale(unsigned threshold) { return 256 * normal_reciprocal(threshold); }
