#include "memory/output.cuh"
#include "memory/copy.cuh"
#include "common/math.cuh"

// What thread blocks find of an item that several of them have parts of (Flash-Decoding, steps 2 and 3), merged by the one that
// comes last (LeanAttention, Algorithm 2; as Stream-K's fix-up). All is in fp32. Parts are merged in their order, whoever merges them.

/// Rows of partial results: one for each row of a tile of Q.
struct SlotRows {
    float* target;
    int width, count;

    __device__ __forceinline__ bool holds(int row) const { return row < count; }
    __device__ __forceinline__ long long offset(int row) const { return (long long)row * width; }
};

/// atomicInc. What the block has written before its last barrier is there for whoever counts later, and the other way round.
__device__ __forceinline__ unsigned count_arrival(unsigned* counter, unsigned most) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(most) : "memory");
    return before;
}

/// Whether this thread block is the last of `blocks` to come; then it sees what the others wrote before they came. The counter is 0
/// before the first comes, and after the last. A block that is alone leaves it alone: others may count with it for another item.
__device__ __forceinline__ bool comes_last(unsigned* counter, int blocks) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) last = blocks == 1 || count_arrival(counter, blocks - 1) == blocks - 1;
    __syncthreads();
    return last;
}

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

/// How rows of parts lie in shared memory while they are merged: O of `parts` parts at once, [part, row, column]; m and l, or in
/// place of m the weights, of all parts, [row, part].
template <int THREADS, int COLUMNS>
struct MergeRoom {
    static constexpr int QUADS = COLUMNS / 4, QUADS_A_THREAD = 4;

    float *out, *weights, *sums;
    int rows, parts;

    /// `room` floats, for at least one row.
    __device__ __forceinline__ MergeRoom(float* shared, int room, int all_rows, int all_parts) : out(shared) {
        rows = min(min(all_rows, QUADS_A_THREAD * THREADS / QUADS), room / (2 * all_parts + COLUMNS));
        parts = min((room - 2 * rows * all_parts) / (rows * COLUMNS), all_parts);
        weights = shared + rows * parts * COLUMNS;
        sums = weights + rows * all_parts;
    }
};

/// Starts to load O of parts [first, end), rows [begin, begin + rows).
template <int THREADS, int COLUMNS, class AnyParts>
__device__ __forceinline__ void load_parts(const AnyParts& parts, float* target, int first, int end, int begin, int rows) {
    const int quads = rows * (COLUMNS / 4);  // of a part, which follow each other
#pragma unroll 4
    for (int i = threadIdx.x; i < (end - first) * quads; i += THREADS) {
        const int part = small_quotient(i, quads);
        copy_async(shared_address(target + 4 * i),
                   parts.out + parts.place(first + part, COLUMNS) + begin * COLUMNS + 4 * (i - part * quads));
    }
    copy_commit();
}

/// The share of each part in l, for `rows` rows: to `room.weights`, where m is. All threads must call.
template <int THREADS, class Room, class Sink, class StoreLse>
__device__ __forceinline__ void weigh_parts(const Room& room, int count, int begin, int rows, Sink sink, StoreLse store_lse) {
    constexpr int LANES = 8;  // share a row
    // All lanes go as often through the loop, since they exchange values.
#pragma unroll 1
    for (int first = 0; first < rows; first += THREADS / LANES) {
        const int row = first + threadIdx.x / LANES, lane = threadIdx.x % LANES, parts = row < rows ? count : 0;
        float *const weights = room.weights + row * count, *const sums = room.sums + row * count;
        const float logit = row < rows ? sink(begin + row) : NEGATIVE_INFINITY;
        float top = logit, sum = 0;
        for (int part = lane; part < parts; part += LANES) top = fmaxf(top, weights[part]);
#pragma unroll
        for (int distance = 1; distance < LANES; distance *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
        const float base = top == NEGATIVE_INFINITY ? 0.0f : top;  // of a row without keys all weigh 0
        for (int part = lane; part < parts; part += LANES) {
            weights[part] = expf(weights[part] - base) * sums[part];
            sum += weights[part];
        }
#pragma unroll
        for (int distance = 1; distance < LANES; distance *= 2) sum += __shfl_xor_sync(~0u, sum, distance);
        sum += logit == NEGATIVE_INFINITY ? 0.0f : expf(logit - base);
        const float factor = sum == 0 ? 0.0f : 1.0f / sum;
        // Here and not after the sums: where one part alone has met keys, its share is 1, and its row stays as it is.
        for (int part = lane; part < parts; part += LANES) weights[part] *= factor;
        if (row < rows && lane == 0) store_lse(begin + row, top, sum);
    }
}

/// Merges rows [0, rows) of all parts: O, the sum of the parts' rows, each weighted by its share of l, and lse = m + log(l), go
/// to `store(row, column, four columns)` and `store_lse(row, m, l)`. `sink(row)`: a logit that takes part in l alone. `shared` has
/// `room` floats: all that fits is on its way at once, since one block alone must bring it.
template <int THREADS, int COLUMNS, class AnyParts, class Sink, class Store, class StoreLse>
__device__ __forceinline__ void merge_parts(const AnyParts& parts, int rows, float* shared, int room_floats, Sink sink,
                                            Store store, StoreLse store_lse) {
    using Room = MergeRoom<THREADS, COLUMNS>;
    const Room room(shared, room_floats, rows, parts.count);
    const int count = parts.count;
#pragma unroll 1
    for (int begin = 0; begin < rows; begin += room.rows) {
        const int here = min(room.rows, rows - begin), quads = here * Room::QUADS;
        __syncthreads();  // all have left what was there
        load_parts<THREADS, COLUMNS>(parts, room.out, 0, room.parts, begin, here);
#pragma unroll 1
        for (int i = threadIdx.x; i < here * count; i += THREADS) {
            const int row = small_quotient(i, count);
            const long long place = parts.place(i - row * count, 1) + begin + row;
            room.weights[i] = parts.row_max == nullptr ? 1.0f : __ldcg(parts.row_max + place);
            room.sums[i] = parts.row_max == nullptr ? 1.0f : __ldcg(parts.row_sum + place);
        }
        __syncthreads();
        if (parts.row_max != nullptr) weigh_parts<THREADS>(room, count, begin, here, sink, store_lse);
        float4 sums[Room::QUADS_A_THREAD] = {};
#pragma unroll 1
        for (int first = 0; first < count; first += room.parts) {
            const int end = min(first + room.parts, count);
            copy_wait<0>();
            __syncthreads();
#pragma unroll
            for (int i = 0; i < Room::QUADS_A_THREAD; ++i) {
                const int quad = threadIdx.x + i * THREADS;
                if (quad >= quads) continue;
                const float* weights = room.weights + quad / Room::QUADS * count;
                const float4* item = (const float4*)room.out + quad;
#pragma unroll 4
                for (int part = first; part < end; ++part, item += quads) {
                    const float weight = weights[part];
                    sums[i].x = fmaf(weight, item->x, sums[i].x);
                    sums[i].y = fmaf(weight, item->y, sums[i].y);
                    sums[i].z = fmaf(weight, item->z, sums[i].z);
                    sums[i].w = fmaf(weight, item->w, sums[i].w);
                }
            }
            if (end == count) break;
            __syncthreads();  // all have left what the next parts take the place of
            load_parts<THREADS, COLUMNS>(parts, room.out, end, min(end + room.parts, count), begin, here);
        }
#pragma unroll
        for (int i = 0; i < Room::QUADS_A_THREAD; ++i) {
            const int quad = threadIdx.x + i * THREADS;
            if (quad < quads) store(begin + quad / Room::QUADS, quad % Room::QUADS * 4, sums[i]);
        }
    }
}
