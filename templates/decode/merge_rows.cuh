#include "common/math.cuh"

// Flash-Decoding, step 3, for parts whose rows are in shared memory: of other keys, O normalised, m and l. O, the sum of the parts' rows,
// each weighted by its share of l, goes to `results.store(row, column, four columns)`, m and l to `results.store_row(row, m, l)`.
// `results.sink(row)`: a logit that takes part in l alone.

/// Rows of partial results: one for each row of a tile of Q.
struct SlotRows {
    float* target;
    int width, count;

    __device__ __forceinline__ bool holds(int row) const { return row < count; }
    __device__ __forceinline__ long long offset(int row) const { return (long long)row * width; }
};

/// How rows of parts lie there while they are merged: O of `parts` parts at once, [part, row, column]; m and l, or in place of m the
/// weights, of all parts, [row, part].
template <int COLUMNS>
struct MergeRoom {
    static constexpr int PITCH = COLUMNS + 8;  // lanes that write their pieces of 4 rows meet no bank twice

    float *out, *weights, *sums;
    int rows, parts;

    /// For all of them.
    __device__ __forceinline__ MergeRoom(float* shared, int rows, int parts, int all_parts)
        : out(shared), weights(shared + rows * parts * PITCH), sums(weights + rows * all_parts), rows(rows), parts(parts) {}

    /// In `floats` floats: whole rows of all parts, as many as there is room for; or one, of some parts at once.
    static __device__ __forceinline__ MergeRoom within(float* shared, int floats, int all_rows, int all_parts) {
        const int rows = max(min(all_rows, small_quotient(floats, all_parts * (PITCH + 2))), 1);
        return MergeRoom(shared, rows, min(small_quotient(floats - 2 * rows * all_parts, rows * PITCH), all_parts), all_parts);
    }

    /// Where a row stands, while there are `count` of each part.
    __device__ __forceinline__ float* row(int part, int row, int count) const { return out + (part * count + row) * PITCH; }

    __device__ __forceinline__ int part_bytes(int count) const { return count * PITCH * (int)sizeof(float); }
};

/// The share of each part in l, for rows [from, from + rows), no more than threads: to `room.weights`, where m is. All threads must call.
template <int THREADS, class Room, class Results>
__device__ __forceinline__ void weigh_rows(const Room& room, int count, int begin, int from, int rows, const Results& results) {
    // Lanes that share a row. All lanes go as often through the loops in which they exchange values.
    int shift = 3;
    while (rows << shift > THREADS) --shift;
    const int lanes = 1 << shift, row = threadIdx.x >> shift, lane = threadIdx.x & (lanes - 1), parts = row < rows ? count : 0;
    float *const weights = room.weights + (from + row) * count, *const sums = room.sums + (from + row) * count;
    const float logit = row < rows ? results.sink(begin + from + row) : NEGATIVE_INFINITY;
    float top = logit, sum = 0;
#pragma unroll 1
    for (int part = lane; part < parts; part += lanes) top = fmaxf(top, weights[part]);
#pragma unroll 1
    for (int distance = 1; distance < lanes; distance *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
    const float base = top == NEGATIVE_INFINITY ? 0.0f : top;  // of a row without keys all weigh 0
#pragma unroll 1
    for (int part = lane; part < parts; part += lanes) {
        weights[part] = expf(weights[part] - base) * sums[part];
        sum += weights[part];
    }
#pragma unroll 1
    for (int distance = 1; distance < lanes; distance *= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    sum += logit == NEGATIVE_INFINITY ? 0.0f : expf(logit - base);
    const float factor = sum == 0 ? 0.0f : normal_reciprocal(sum);
    // Here and not after the sums: where one part alone has met keys, its share is 1, and its row stays as it is.
#pragma unroll 1
    for (int part = lane; part < parts; part += lanes) weights[part] *= factor;
    if (row < rows && lane == 0) results.store_row(begin + from + row, top, sum);
}

/// Of all rows, which are up to 64.
template <int THREADS, class Room, class Results>
__device__ __forceinline__ void weigh_parts(const Room& room, int count, int begin, int rows, const Results& results) {
    if constexpr (THREADS >= 64) {
        weigh_rows<THREADS>(room, count, begin, 0, rows, results);
    } else {
#pragma unroll 1
        for (int from = 0; from < rows; from += THREADS) weigh_rows<THREADS>(room, count, begin, from, min(rows - from, THREADS), results);
    }
}

/// Fours of columns of a row that a thread has.
template <int THREADS, int COLUMNS>
constexpr int FOURS = (COLUMNS / 4 + THREADS - 1) / THREADS;

/// O: adds rows of parts [first, end), each times its weight, to what a thread has of earlier ones; behind the last it stores them, four
/// columns at a time. Parts are there one after the other of one row alone: of several, all are there at once.
template <int THREADS, int COLUMNS, class Results>
__device__ __forceinline__ void add_parts(const MergeRoom<COLUMNS>& room, int count, int first, int end, int begin, int rows,
                                          float4 (&sums)[FOURS<THREADS, COLUMNS>], const Results& results) {
    constexpr int QUADS = COLUMNS / 4, STEP = FOURS<THREADS, COLUMNS> * THREADS;
#pragma unroll 1
    for (int at = threadIdx.x; at < rows * QUADS; at += STEP) {
#pragma unroll
        for (int i = 0; i < FOURS<THREADS, COLUMNS>; ++i) {
            const int quad = at + i * THREADS, row = quad / QUADS, column = quad % QUADS * 4;
            if (i > 0 && quad >= rows * QUADS) break;
            const float* weight = room.weights + row * count;
            const float* item = room.row(0, row, rows) + column;
            float4& sum = sums[i];
#pragma unroll 4
            for (int part = first; part < end; ++part, item += rows * room.PITCH) {
                const float4 x = *(const float4*)item;
                sum.x = fmaf(weight[part], x.x, sum.x);
                sum.y = fmaf(weight[part], x.y, sum.y);
                sum.z = fmaf(weight[part], x.z, sum.z);
                sum.w = fmaf(weight[part], x.w, sum.w);
            }
            if (end == count) {
                results.store(begin + row, column, sum);
                sum = {};
            }
        }
    }
}
