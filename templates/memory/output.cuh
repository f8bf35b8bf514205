#include "common/math.cuh"
#include "common/element.cuh"

/// fp32 results as they are. What a type of stored results tells: how two neighbouring columns become 32-bit words.
struct Unrounded {
    using Element = float;
    static constexpr int WORDS = 2;
    static __device__ __forceinline__ void words(unsigned (&word)[2], float x, float y) {
        word[0] = __float_as_uint(x);
        word[1] = __float_as_uint(y);
    }
};

__device__ __forceinline__ void store_vector(void* target, const unsigned (&x)[2]) {
    *static_cast<uint2*>(target) = make_uint2(x[0], x[1]);
}

__device__ __forceinline__ void store_vector(void* target, const unsigned (&x)[4]) {
    *static_cast<uint4*>(target) = make_uint4(x[0], x[1], x[2], x[3]);
}

/// Stores four neighbouring columns.
template <class Stored>
__device__ __forceinline__ void store_four(typename Stored::Element* target, float4 x) {
    unsigned low[Stored::WORDS], high[Stored::WORDS], all[2 * Stored::WORDS];
    Stored::words(low, x.x, x.y);
    Stored::words(high, x.z, x.w);
#pragma unroll
    for (int word = 0; word < Stored::WORDS; ++word) all[word] = low[word], all[Stored::WORDS + word] = high[word];
    store_vector(target, all);
}

/// How the lanes of a quad store the 16 columns of two fragments, of which each holds two neighbours of both. Columns
/// of 16 bits go in fours: lanes of a pair swap halves of the fragments, so that each stores four columns of one at
/// once. In fp32 the quad's pairs are 32 bytes in a row, a whole sector, as they stand.
struct ColumnsInPairs {
    template <class Stored>
    static __device__ __forceinline__ int first(int lane) {
        return Stored::WORDS == 1 ? lane % 4 / 2 * 4 + lane % 2 * 8 : lane % 4 * 2;
    }

    /// `target`: where the lane's first column goes; of those from it on, `columns` exist.
    template <class Stored>
    static __device__ __forceinline__ void store(typename Stored::Element* target, const float (&x)[2][2], int columns, [[maybe_unused]] int lane) {
        if constexpr (Stored::WORDS == 1) {
            const bool odd = lane % 2;
            unsigned low[1], high[1];
            Stored::words(low, x[0][0], x[0][1]);
            Stored::words(high, x[1][0], x[1][1]);
            const unsigned other = __shfl_xor_sync(~0u, odd ? low[0] : high[0], 1);
            const unsigned packed[2] = {odd ? other : low[0], odd ? high[0] : other};
            if (columns > 0) *(uint2*)target = make_uint2(packed[0], packed[1]);
        } else {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                unsigned packed[2];
                Stored::words(packed, x[half][0], x[half][1]);
                if (columns > 8 * half) *(uint2*)(target + 8 * half) = make_uint2(packed[0], packed[1]);
            }
        }
    }
};

/// How the lanes of a quad store two fragments where one has the even columns and the next the odd ones: a lane holds four neighbours already.
struct ColumnsInFours {
    template <class Stored>
    static __device__ __forceinline__ int first(int lane) {
        return lane % 4 * 4;
    }

    template <class Stored>
    static __device__ __forceinline__ void store(typename Stored::Element* target, const float (&x)[2][2], int columns, [[maybe_unused]] int lane) {
        if (columns > 0) store_four<Stored>(target, {x[0][0], x[1][0], x[0][1], x[1][1]});
    }
};

/// Where a tile's rows go: slot i to row `Order::offset(i)` from `target` on, if below `rows`. Strides are of elements.
template <class Element, class Order>
struct RowPlaces {
    Element* target;
    long long stride;
    int rows;

    __device__ __forceinline__ bool holds(int slot) const { return Order::offset(slot) < rows; }
    __device__ __forceinline__ long long offset(int slot) const { return Order::offset(slot) * stride; }
};

/// Stores the warp's rows, M_TILES * 16 slots from `slot` on, where `places` says (multiples of 16 bytes); of their
/// columns the first COLUMNS (a multiple of 8). Row tile m, half r is multiplied by factor[m][r]. All lanes must call.
template <class Stored, int COLUMNS, class Columns = ColumnsInPairs, int M_TILES, int D_TILES, class Places>
__device__ __forceinline__ void store_rows(const Places& places, int slot, const float (&out)[M_TILES][D_TILES][4],
                                           const float (&factor)[M_TILES][2], int lane = threadIdx.x % 32) {
    const int column = Columns::template first<Stored>(lane);
#pragma unroll
    for (int row_pair = 0; row_pair < 2 * M_TILES; ++row_pair) {
        const int m = row_pair / 2, r = row_pair % 2, row = slot + 8 * row_pair + lane / 4;
        // Opaque, or they would be computed anew for each fragment.
        auto* address = places.target + opaque_long(places.offset(row) + column);
        const bool exists = places.holds(row);
#pragma unroll
        for (int d = 0; d < D_TILES; d += 2) {
            float x[2][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i / 2][i % 2] = out[m][d + i / 2][2 * r + i % 2] * factor[m][r];
            const int columns = 8 * d + 16 <= COLUMNS ? 16 : COLUMNS - 8 * d - column;
            Columns::template store<Stored>(address + 8 * d, x, exists ? columns : 0, lane);
        }
    }
}

/// Stores the warp's rows of a tile whose row 0 goes to `target`.
template <class Stored, class Order, int COLUMNS, int M_TILES, int D_TILES>
__device__ __forceinline__ void store_rows(typename Stored::Element* target, long long stride, int rows, int slot,
                                           const float (&out)[M_TILES][D_TILES][4], const float (&factor)[M_TILES][2],
                                           int lane = threadIdx.x % 32) {
    store_rows<Stored, COLUMNS>(RowPlaces<typename Stored::Element, Order>{target, stride, rows}, slot, out, factor, lane);
}

/// How many of the 2 * M_TILES rows that the lanes of a quad share are one lane's own, where each is to be one lane's.
template <int M_TILES>
constexpr int OWN_ROWS = (2 * M_TILES + 3) / 4;

/// Of these rows, in fours, each lane owns the one of this number.
__device__ __forceinline__ int own_row() { return threadIdx.x % 4; }

/// Stores one value for each of the warp's rows, as `store_rows` does: this lane those of its own rows.
template <int M_TILES, class Places, class Value>
__device__ __forceinline__ void store_row_values(const Places& places, int slot, Value value) {
#pragma unroll
    for (int own = 0; own < OWN_ROWS<M_TILES>; ++own) {
        const float x = value(own);
        const int number = 4 * own + own_row(), row = slot + 8 * number + threadIdx.x % 32 / 4;
        if (number < 2 * M_TILES && places.holds(row)) places.target[places.offset(row)] = x;
    }
}
