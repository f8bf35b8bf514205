#include "common/element.cuh"

/// A line of an input that is read at kv_idx, from the sequence's first key on. Behind `length` entries it reads 0.
template <class Element>
struct KeyLine {
    const Element* first;
    long long stride;
    int length;
};

__device__ __forceinline__ unsigned raw_bits(const unsigned char* address) { return __ldg(address); }
__device__ __forceinline__ unsigned raw_bits(const int* address) { return __ldg(address); }
__device__ __forceinline__ unsigned raw_bits(const float* address) { return __float_as_uint(__ldg(address)); }
template <class Half>  // fp16 or bf16
__device__ __forceinline__ unsigned raw_bits(const Half* address) { return __ldg(&address->bits); }

// The value of an element, whose type the first argument tells; bits above its own don't count.
__device__ __forceinline__ bool from_bits(const unsigned char*, unsigned bits) { return (bits & 255) != 0; }
__device__ __forceinline__ int from_bits(const int*, unsigned bits) { return bits; }
__device__ __forceinline__ float from_bits(const float*, unsigned bits) { return __uint_as_float(bits); }
template <class Half>
__device__ __forceinline__ float from_bits(const Half*, unsigned bits) { return to_float(Half{(unsigned short)bits}); }

/// 0, where the compiler can't move it.
__device__ __forceinline__ unsigned zero_here() {
    unsigned zero;
    asm volatile("mov.b32 %0, 0;" : "=r"(zero));
    return zero;
}

/// Four lanes that stand side by side exchange words: lane i gets from lane j, in place of word j, the word i.
__device__ __forceinline__ void transpose_quad(unsigned (&word)[4]) {
#pragma unroll
    for (int distance = 1; distance <= 2; ++distance) {
        const bool odd = threadIdx.x & distance;
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            const int low = distance == 1 ? 2 * pair : pair, high = low + distance;
            const unsigned other = __shfl_xor_sync(~0u, odd ? word[low] : word[high], distance);
            word[low] = odd ? other : word[low];
            word[high] = odd ? word[high] : other;
        }
    }
}

/// Four words that begin `bytes` behind the first of eight.
__device__ __forceinline__ void shift_bytes(unsigned* four, const unsigned (&words)[8], unsigned bytes) {
    unsigned by_two[6], by_one[5];
#pragma unroll
    for (int i = 0; i < 6; ++i) by_two[i] = bytes & 8 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) by_one[i] = bytes & 4 ? by_two[i + 1] : by_two[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) four[i] = __funnelshift_rc(by_one[i], by_one[i + 1], bytes % 4 * 8);
}

/// A lane's entries of a line, for the columns that it holds of N_TILES column tiles (the accumulators of
/// mma_16bit.cuh): 8 n + 2 (lane % 4) and the next one, as raw bits. OF_ROW: other rows have other lines. Each row then
/// costs the L1 cache an access, however wide: a lane reads 16 bytes, and the four lanes of a row exchange them.
template <class Element, int N_TILES, bool OF_ROW>
struct LaneEntries {
    static constexpr int SIZE = sizeof(Element), PER_WORD = 4 / SIZE;
    static constexpr int WORDS = (2 * N_TILES + PER_WORD - 1) / PER_WORD;
    static constexpr bool EXCHANGED = OF_ROW && SIZE < 4 && WORDS % 4 == 0;
    static constexpr int PIECE = EXCHANGED ? 16 : 2 * SIZE;  // bytes that a lane reads at once
    static constexpr int KEYS = PIECE / SIZE;                // in them

    // Whether entries that aren't aligned are read a word at a time: with 32 bits they are words, with 16 parts of two.
    static constexpr bool IN_WORDS = SIZE > 1, SPLIT = SIZE == 2;

    unsigned words[WORDS];
    unsigned behind;  // the word behind them, where entries are parts of two

    /// Whether the entries of the keys from `kv_first` on lie in pieces: next to each other, aligned, none missing.
    static __device__ __forceinline__ bool in_pieces(const KeyLine<Element>& line, int kv_first) {
        const bool aligned = (unsigned)(unsigned long long)(line.first + kv_first) % PIECE == 0;
        return line.stride == 1 && aligned && kv_first + 8 * N_TILES <= line.length;
    }

    /// Begins to read them if they do.
    __device__ __forceinline__ void load_pieces(const KeyLine<Element>& line, int kv_first) {
        const unsigned char* own = (const unsigned char*)(line.first + kv_first) + threadIdx.x % 4 * PIECE;
#pragma unroll
        for (int i = 0; i < 2 * N_TILES / KEYS; ++i) load_piece(i, own + 4 * PIECE * i);
    }

    /// Whether the words of these keys, aligned or not, may be read: entries lie next to each other, and no word beyond the line.
    static __device__ __forceinline__ bool in_words(const KeyLine<Element>& line, int kv_first) {
        return IN_WORDS && line.stride == 1 && kv_first + 8 * N_TILES + 8 * SPLIT <= line.length;
    }

    /// Begins to read them.
    __device__ __forceinline__ void load_in_words(const KeyLine<Element>& line, int kv_first) {
        const unsigned* own = first_word(line, kv_first) + threadIdx.x % 4 * (SPLIT ? 1 : 2);
#pragma unroll
        for (int i = 0; i < WORDS; ++i) words[i] = __ldg(own + (SPLIT ? 4 * i : i / 2 * 8 + i % 2));
        if constexpr (SPLIT) behind = __ldg(own + 4 * WORDS);
    }

    /// Between `load_in_words` and `at`: where entries are parts of two words, the other one is the next lane's. All lanes must call.
    __device__ __forceinline__ void join(const KeyLine<Element>& line, int kv_first) {
        if constexpr (SPLIT) {
            const unsigned shift = (unsigned)(unsigned long long)(line.first + kv_first) % 4 * 8;
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                const unsigned after = i + 1 < WORDS ? words[i + 1] : behind;
                const unsigned next = __shfl_sync(~0u, threadIdx.x % 4 == 0 ? after : words[i], threadIdx.x + 1, 4);
                words[i] = __funnelshift_rc(words[i], next, shift);
            }
        }
    }

    /// Whether pieces that aren't aligned may be read as two aligned ones each: none of them reaches beyond the line.
    /// What lies before it in the first is of the same allocation, which is aligned. Smaller pieces are read one by one.
    static __device__ __forceinline__ bool next_to_each_other(const KeyLine<Element>& line, int kv_first) {
        return !EXCHANGED || (line.stride == 1 && kv_first + 8 * N_TILES + KEYS <= line.length);
    }

    /// Reads them so. As with `load_pieces`, they are to be exchanged.
    __device__ __forceinline__ void load_shifted(const KeyLine<Element>& line, int kv_first) {
        if constexpr (EXCHANGED) {
            const unsigned long long own = (unsigned long long)(line.first + kv_first) + threadIdx.x % 4 * PIECE;
            const uint4* pieces = (const uint4*)(own - own % PIECE);
#pragma unroll
            for (int i = 0; i < WORDS; i += 4) {
                const uint4 low = __ldg(pieces + i), high = __ldg(pieces + i + 1);
                const unsigned both[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
                shift_bytes(&words[i], both, own % PIECE);
            }
        } else {
            load_singly(line, kv_first);
        }
    }

    /// Reads them wherever they lie, each where it is needed: nothing is to be exchanged.
    __device__ __forceinline__ void load_singly(const KeyLine<Element>& line, int kv_first) {
        const int lane_key = kv_first + threadIdx.x % 4 * 2;
        const Element* own = line.first + lane_key * line.stride;
#pragma unroll
        for (int i = 0; i < 2 * N_TILES; ++i) {
            const int key = i / 2 * 8 + i % 2;
            const unsigned bits = lane_key + key < line.length ? raw_bits(own + key * line.stride) : 0;
            words[i / PER_WORD] = i % PER_WORD == 0 ? bits : words[i / PER_WORD] | bits << i % PER_WORD * 8 * SIZE;
        }
    }

    /// Between loads of pieces and `at`. All lanes of the warp must call.
    __device__ __forceinline__ void exchange() {
        if constexpr (EXCHANGED) {
#pragma unroll
            for (int i = 0; i < WORDS; i += 4) {
                unsigned word[4] = {words[i], words[i + 1], words[i + 2], words[i + 3]};
                if constexpr (SIZE == 1) pair_columns(word);
                transpose_quad(word);
                memcpy(&words[i], word, sizeof(word));
            }
        }
    }

    /// Before loads under a condition. ptxas makes them predicated, and such a load alone doesn't end what a word was
    /// before: it would take a register all the time.
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (unsigned& word : words) word = zero_here();
    }

    /// What is read at a column.
    __device__ __forceinline__ auto at(int n, int side) const {
        const int entry = 2 * n + side;
        return from_bits((const Element*)nullptr, words[entry / PER_WORD] >> entry % PER_WORD * 8 * SIZE);
    }

private:
    /// The word that holds the entry of `kv_first`.
    static __device__ __forceinline__ const unsigned* first_word(const KeyLine<Element>& line, int kv_first) {
        return (const unsigned*)((unsigned long long)(line.first + kv_first) & ~3ull);
    }

    /// Bytes of two column tiles: words of two pairs of columns of one tile become words of one pair of both tiles.
    static __device__ __forceinline__ void pair_columns(unsigned (&word)[4]) {
        const unsigned first[2] = {word[0], word[1]}, second[2] = {word[2], word[3]};
#pragma unroll
        for (int i = 0; i < 4; ++i) word[i] = __byte_perm(first[i / 2], second[i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
    }

    __device__ __forceinline__ void load_piece(int i, const unsigned char* piece) {
        if constexpr (PIECE == 16) {
            const uint4 four = __ldg((const uint4*)piece);
            words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
        } else if constexpr (PIECE == 8) {
            const uint2 two = __ldg((const uint2*)piece);
            words[2 * i] = two.x, words[2 * i + 1] = two.y;
        } else if constexpr (PIECE == 4) {
            words[i] = __ldg((const unsigned*)piece);
        } else {
            const unsigned half = __ldg((const unsigned short*)piece);
            words[i / 2] = i % 2 == 0 ? half : words[i / 2] | half << 16;
        }
    }
};
