#include "memory/shared_floats.cuh"
#include "quantized_kv/stored_tile.cuh"
#include "quantized_kv/value_mantissa.cuh"

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

/// Makes 16 numbers of 8 bits two chunks of a tile for tensor cores. `unit`: a power of two that values are multiplied by.
template <class Tile, bool VALUES>
__device__ __forceinline__ void widen_chunk(const unsigned (&bytes)[4], unsigned tile, int row, int chunk, float unit) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        unsigned wide[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) wide[i] = Widen::pair(bytes[2 * half + i / 2], i % 2);
        if ((Widen::undefined(bytes[2 * half]) | Widen::undefined(bytes[2 * half + 1])) != 0) {
#pragma unroll
            for (int i = 0; i < 4; ++i) wide[i] = Widen::with_undefined(wide[i], Widen::undefined(bytes[2 * half + i / 2]), i % 2);
        }
        if constexpr (VALUES && Wide::LEAST_UNIT < Wide::MOST_UNIT) {
#pragma unroll
            for (int i = 0; i < 4; ++i) wide[i] = Wide::multiply_add(wide[i], Wide::power_of_two(unit), 0x80008000);
        }
        store_words(Tile::place(tile, row, 2 * chunk + half).address, wide);
    }
}

/// Makes rows of 8 bits a tile of 16, for tensor cores, and leaves their factors behind it. All THREADS threads take part, each
/// with AT_ONCE chunks on their way. `mantissa`: see value_mantissa.cuh.
template <class Stored, class Tile, int THREADS, int MOST_AT_ONCE, bool VALUES>
__device__ __forceinline__ void widen_tile(unsigned stored, unsigned tile, unsigned factors, float mantissa) {
    constexpr int AT_ONCE = Stored::ALL_CHUNKS % (MOST_AT_ONCE * THREADS) == 0 ? MOST_AT_ONCE : 1;
    const int thread = opaque((int)threadIdx.x);
#pragma unroll 1
    for (int start = 0; start < Stored::ALL_CHUNKS; start += AT_ONCE * THREADS) {
        if (Stored::ALL_CHUNKS % THREADS != 0 && start + thread >= Stored::ALL_CHUNKS) break;
        unsigned bytes[AT_ONCE][4];
        float scales[AT_ONCE];
        int rows[AT_ONCE], chunks[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int index = start + i * THREADS + thread;
            // Eight threads read and write all banks: half of them are a row further.
            chunks[i] = index % Stored::CHUNKS, rows[i] = index / Stored::CHUNKS ^ (chunks[i] / 4 & 1);
            load_words(stored + 16 * (rows[i] * Stored::CHUNKS + chunks[i]), bytes[i]);
            scales[i] = __uint_as_float(load_word(stored + Stored::SCALES + 4 * rows[i]));
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            float factor = scales[i], unit = 1;
            if constexpr (VALUES) {
                const ValueScale scale(over_mantissa(factor, mantissa));
                factor = scale.factor, unit = scale.unit;
            }
            widen_chunk<Tile, VALUES>(bytes[i], tile, rows[i], chunks[i], unit);
            if (chunks[i] == 0) store_word(factors + 4 * rows[i], __float_as_uint(factor));
        }
    }
}

/// COUNT pieces of a tile of keys, as `attend` reads them: K, with the factors of its rows and those of V behind it; then all of V.
template <class KTile, class VTile, int COUNT, int THREADS, int AT_ONCE>
struct WidenedTile {
    using StoredKeys = StoredTile<KTile::ROWS, KTile::ROW_BYTES / 2>;
    using StoredValues = StoredTile<VTile::ROWS, VTile::ROW_BYTES / 2>;
    static constexpr int FACTORS = 4 * KTile::ROWS, KEYS = KTile::BYTES + 2 * FACTORS, BYTES = COUNT * (KEYS + VTile::BYTES);

    unsigned address;
    float value_mantissa;

    __device__ __forceinline__ unsigned keys(int piece) const { return address + piece * KEYS; }
    __device__ __forceinline__ unsigned values(int piece) const { return address + COUNT * KEYS + piece * VTile::BYTES; }

    __device__ __forceinline__ void take_keys(int piece, unsigned stored) const {
        widen_tile<StoredKeys, KTile, THREADS, AT_ONCE, false>(stored, keys(piece), keys(piece) + KTile::BYTES, 1);
    }

    __device__ __forceinline__ void take_values(int piece, unsigned stored) const {
        widen_tile<StoredValues, VTile, THREADS, AT_ONCE, true>(stored, values(piece), keys(piece) + KTile::BYTES + FACTORS, value_mantissa);
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
