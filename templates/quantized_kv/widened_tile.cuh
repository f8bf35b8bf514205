#include "memory/shared_floats.cuh"
#include "quantized_kv/stored_tile.cuh"

/// What P is multiplied by for a value's scale: all of it in bf16. In fp16, where P has little room, it is from 1 to 2, and V itself
/// is multiplied by the rest, a power of two.
struct ValueScale {
    float factor, unit;

    __device__ __forceinline__ explicit ValueScale(float scale) {
        const float power = __uint_as_float(__float_as_uint(scale) & 0x7f800000);
        unit = fminf(fmaxf(power, Wide::LEAST_UNIT), Wide::MOST_UNIT);
        factor = scale * __uint_as_float((254u << 23) - __float_as_uint(unit));
    }
};

/// Makes rows of 8 bits a tile of 16, for tensor cores, and leaves their factors behind it. All THREADS threads take part.
template <class Stored, class Tile, int THREADS, bool VALUES>
__device__ __forceinline__ void widen_tile(unsigned stored, unsigned tile, unsigned factors) {
    const int thread = opaque((int)threadIdx.x);
#pragma unroll 1
    for (int start = 0; start < Stored::ALL_CHUNKS; start += THREADS) {
        const int index = start + thread;
        if (Stored::ALL_CHUNKS % THREADS != 0 && index >= Stored::ALL_CHUNKS) break;
        // Eight threads read and write all banks: half of them are a row further.
        const int chunk = index % Stored::CHUNKS, row = index / Stored::CHUNKS ^ (chunk / 4 & 1);
        unsigned bytes[4];
        load_words(stored + 16 * (row * Stored::CHUNKS + chunk), bytes);
        float factor = __uint_as_float(load_word(stored + Stored::SCALES + 4 * row)), unit = 1;
        if constexpr (VALUES) {
            const ValueScale scale(factor);
            factor = scale.factor, unit = scale.unit;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned wide[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) wide[i] = Widen::pair(bytes[2 * half + i / 2], i % 2);
            if ((Widen::undefined(bytes[2 * half]) | Widen::undefined(bytes[2 * half + 1])) != 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const unsigned undefined = Widen::undefined(bytes[2 * half + i / 2]);
                    wide[i] = Widen::with_undefined(wide[i], undefined, i % 2);
                }
            }
            if constexpr (VALUES && Wide::LEAST_UNIT < Wide::MOST_UNIT) {
#pragma unroll
                for (int i = 0; i < 4; ++i) wide[i] = Wide::multiply_add(wide[i], Wide::power_of_two(unit), 0x80008000);
            }
            store_words(Tile::place(tile, row, 2 * chunk + half).address, wide);
        }
        if (chunk == 0) store_word(factors + 4 * row, __float_as_uint(factor));
    }
}

/// COUNT pieces of a tile of keys, as `attend` reads them: K, with the factors of its rows and those of V behind it; then all of V.
template <class KTile, class VTile, int COUNT, int THREADS>
struct WidenedTile {
    using StoredKeys = StoredTile<KTile::ROWS, KTile::ROW_BYTES / 2>;
    using StoredValues = StoredTile<VTile::ROWS, VTile::ROW_BYTES / 2>;
    static constexpr int FACTORS = 4 * KTile::ROWS, KEYS = KTile::BYTES + 2 * FACTORS, BYTES = COUNT * (KEYS + VTile::BYTES);

    unsigned address;

    __device__ __forceinline__ unsigned keys(int piece) const { return address + piece * KEYS; }
    __device__ __forceinline__ unsigned values(int piece) const { return address + COUNT * KEYS + piece * VTile::BYTES; }

    __device__ __forceinline__ void take_keys(int piece, unsigned stored) const {
        widen_tile<StoredKeys, KTile, THREADS, false>(stored, keys(piece), keys(piece) + KTile::BYTES);
    }

    __device__ __forceinline__ void take_values(int piece, unsigned stored) const {
        widen_tile<StoredValues, VTile, THREADS, true>(stored, values(piece), keys(piece) + KTile::BYTES + FACTORS);
    }
};

/// The factors of the keys that a lane has in accumulators.
template <class KTile>
struct KeyFactors {
    unsigned address;  // those of K, then those of V

    __device__ __forceinline__ explicit KeyFactors(unsigned keys) : address(keys + KTile::BYTES + threadIdx.x % 4 * 8) {}

    /// Multiplies the columns of S.
    template <int M_TILES, int N_TILES>
    __device__ __forceinline__ void scale(float (&scores)[M_TILES][N_TILES][4]) const {
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) {
            const float2 of_keys = load_float2(address + 32 * n);
#pragma unroll
            for (int m = 0; m < M_TILES; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) scores[m][n][i] *= i % 2 == 0 ? of_keys.x : of_keys.y;
        }
    }

    /// Multiplies P of column tile n.
    __device__ __forceinline__ void scale_probs(int n, float (&x)[4]) const {
        const float2 of_values = load_float2(address + 4 * KTile::ROWS + 32 * n);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] *= i % 2 == 0 ? of_values.x : of_values.y;
    }
};
