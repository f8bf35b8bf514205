#include "dropout/philox_words.cuh"

/// As in philox.cuh, of rows whose queries and heads are any: each has words of its own. A warp works on 32 keys at once, from a
/// multiple of 32 on, or on half of them.
template <int M_TILES>
struct Dropout {
    uint2 key;
    unsigned threshold;  // 1..256; the keep rate is threshold / 256
    int q[M_TILES][2], pairs[M_TILES][2];  // of each row: q_idx; b * num_heads + h
    int kv_first;
    uint4 words[M_TILES][2];

    /// `first_pair`: that of the sequence's first head.
    template <class LaneRows>
    __device__ __forceinline__ void begin_rows(unsigned long long seed, unsigned threshold, int first_pair,
                                               const LaneRows& lane_rows) {
        key = make_uint2((unsigned)seed, (unsigned)(seed >> 32));
        this->threshold = threshold;
#pragma unroll
        for (int i = 0; i < 2 * M_TILES; ++i) {
            q[i / 2][i % 2] = lane_rows.q_idx(i / 2, i % 2);
            pairs[i / 2][i % 2] = first_pair + lane_rows.head(i / 2, i % 2);
        }
    }

    /// Where q_idx 0 isn't the sequence's first query: `place` is where it is.
    __device__ __forceinline__ void move_rows(int place) {
#pragma unroll
        for (int i = 0; i < 2 * M_TILES; ++i) q[i / 2][i % 2] += place;
    }

    __device__ __forceinline__ void begin_tile(int kv_first) { this->kv_first = kv_first; }

    __device__ __forceinline__ float scale() const { return kept_scale(threshold); }

    /// The word of row r of fragments (m, n), which has the row's byte shifted to where row 0 of 16 has it.
    __device__ __forceinline__ unsigned word(int m, int r, int n) {
        const int q_idx = q[m][r], number = q_idx % 8 * 4 + threadIdx.x % 4, fragment = (n + kv_first % 32 / 8) % 4;
        if (n % 4 == 0) words[m][r] = philox4x32_7(make_uint4(kv_first / 32 + n / 4, q_idx / 16, pairs[m][r], number), key);
        const uint4 four = words[m][r];
        const unsigned word = fragment == 0 ? four.x : fragment == 1 ? four.y : fragment == 2 ? four.z : four.w;
        return word >> q_idx / 8 % 2 * 8;
    }

    /// 16-bit probabilities of fragments (m, n) and (m, n + 1), packed by columns: rows 0 and 1 of the one, then the other.
    __device__ __forceinline__ void drop(unsigned (&probs)[4], int m, int n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) probs[i] &= ~dropped_halves(word(m, i % 2, n + i / 2), 0, threshold);
    }

    /// fp32 probabilities of fragment (m, n).
    __device__ __forceinline__ void drop(float (&probs)[4], int m, int n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if ((word(m, i / 2, n) >> i % 2 * 16 & 255) >= threshold) probs[i] = 0;
    }
};
