#include "memory/key_lines.cuh"

/// A lane's entries of a line at 16 keys.
template <class Element>
struct RowEntries {
    static constexpr int SIZE = sizeof(Element), PER_WORD = 4 / SIZE;

    unsigned words[4 * SIZE];

    static __device__ __forceinline__ bool in_pieces(const KeyLine<Element>& line, int kv_first) {
        const bool aligned = (unsigned)(unsigned long long)(line.first + kv_first) % 16 == 0;
        return line.stride == 1 && aligned && kv_first + 16 <= line.length;
    }

    __device__ __forceinline__ RowEntries(const KeyLine<Element>& line, int kv_first) {
        const uint4* pieces = (const uint4*)(line.first + kv_first);
#pragma unroll
        for (int i = 0; i < SIZE; ++i) {
            const uint4 four = __ldg(pieces + i);
            words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
        }
    }

    __device__ __forceinline__ auto at(int key) const {
        return from_bits((const Element*)nullptr, words[key / PER_WORD] >> key % PER_WORD * 8 * SIZE);
    }
};
