#include "decode/merge_rows.cuh"
#include "memory/copy.cuh"

// What thread blocks find of an item that several of them have parts of (Flash-Decoding, steps 2 and 3), merged by the one that
// comes last (LeanAttention, Algorithm 2; as Stream-K's fix-up). All is in fp32. Parts are merged in their order, whoever merges them.

/// The parts of an item: O normalised [slot, row, column], m and l [slot, row], for up to `slot_rows` rows a slot. Without a softmax
/// `row_max` is null, and parts just add up.
template <int COLUMNS>
struct Parts {
    const float *out, *row_max, *row_sum;
    int slot_rows, count;
    int first, second, stride;  // slots: of the first part, of the second, and how far it is to the others

    /// Where row 0 of a part stands in an array of `width` columns, as far from the array's begin.
    __device__ __forceinline__ long long place(int part, int width) const {
        return (part == 0 ? first : second + (part - 1) * stride) * (long long)(slot_rows * width);
    }
};

/// Starts to load O of parts [first, end), rows [begin, begin + rows). Threads take the same columns of several parts.
template <int THREADS, int COLUMNS, class AnyParts>
__device__ __forceinline__ void load_parts(const MergeRoom<COLUMNS>& room, const AnyParts& parts, int first, int end, int begin, int rows) {
    constexpr int QUADS = COLUMNS / 4;
    const int quads = rows * QUADS, at_once = max(small_quotient(THREADS, quads), 1);
    const int own = small_quotient(threadIdx.x, quads);
    if (own < at_once) {
#pragma unroll 1
        for (int quad = threadIdx.x - own * quads; quad < quads; quad += THREADS) {
            const float* source = parts.out + (begin * QUADS + quad) * 4;
            const unsigned target = shared_address(room.row(0, quad / QUADS, rows) + quad % QUADS * 4);
#pragma unroll 4
            for (int part = first + own; part < end; part += at_once)
                copy_async(target + (part - first) * room.part_bytes(rows), source + parts.place(part, COLUMNS));
        }
    }
    copy_commit();
}

/// Loads m and l of all parts, rows [begin, begin + rows).
template <int THREADS, class Room, class AnyParts>
__device__ __forceinline__ void load_row_values(const Room& room, const AnyParts& parts, int begin, int rows) {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * parts.count; i += THREADS) {
        const int row = small_quotient(i, parts.count);
        const long long place = parts.place(i - row * parts.count, 1) + begin + row;
        room.weights[i] = parts.row_max == nullptr ? 1.0f : __ldcg(parts.row_max + place);
        room.sums[i] = parts.row_max == nullptr ? 1.0f : __ldcg(parts.row_sum + place);
    }
}

/// Merges rows [from, to) of all parts. `shared` has `room_floats` floats: all that fits is on its way at once, since one block alone
/// must bring it.
template <int THREADS, int COLUMNS, class AnyParts, class Results>
__device__ __forceinline__ void merge_parts(const AnyParts& parts, int from, int to, float* shared, int room_floats,
                                            const Results& results) {
    const int count = parts.count;
    const MergeRoom<COLUMNS> room = MergeRoom<COLUMNS>::within(shared, room_floats, to - from, count);
#pragma unroll 1
    for (int begin = from; begin < to; begin += room.rows) {
        const int here = min(room.rows, to - begin);
        float4 sums[FOURS<THREADS, COLUMNS>] = {};
#pragma unroll 1
        for (int first = 0; first < count; first += room.parts) {
            const int end = min(first + room.parts, count);
            __syncthreads();  // all have left what was there
            load_parts<THREADS>(room, parts, first, end, begin, here);
            if (first == 0) {
                load_row_values<THREADS>(room, parts, begin, here);
                __syncthreads();
                if (parts.row_max != nullptr) weigh_parts<THREADS>(room, count, begin, here, results);
            }
            copy_wait<0>();
            __syncthreads();
            add_parts<THREADS>(room, count, first, end, begin, here, sums, results);
        }
    }
}
