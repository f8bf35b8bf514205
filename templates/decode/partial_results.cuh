#include "memory/output.cuh"
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

/// The sums over all parts of COUNT quads of columns, [row, quad] from `first` on, a step of THREADS apart, of `end`. BATCH parts
/// are on their way at once.
template <int THREADS, int COUNT, int BATCH, int COLUMNS, class Store>
__device__ __forceinline__ void sum_parts(const Parts<COLUMNS>& parts, const float* weights, int first_row, int first, int end,
                                          Store store) {
    constexpr int QUADS = COLUMNS / 4;
    const float *own[COUNT], *own_weights[COUNT];
    float4 sums[COUNT] = {};
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int quad = min(first + i * THREADS, end - 1);
        own[i] = parts.out + first_row * COLUMNS + 4 * quad;
        own_weights[i] = weights + quad / QUADS * parts.count;
    }
#pragma unroll 1
    for (int part = 0; part < parts.count; part += BATCH) {
        float4 x[BATCH][COUNT];
#pragma unroll
        for (int i = 0; i < BATCH * COUNT; ++i) {
            const int of = min(part + i / COUNT, parts.count - 1);  // loaded again rather than not at all: no branches
            x[i / COUNT][i % COUNT] = __ldcg((const float4*)(own[i % COUNT] + parts.place(of, COLUMNS)));
        }
#pragma unroll
        for (int i = 0; i < BATCH * COUNT; ++i) {
            const int of = part + i / COUNT;
            const float weight = of < parts.count ? own_weights[i % COUNT][of] : 0.0f;
            const float4 item = x[i / COUNT][i % COUNT];
            float4& sum = sums[i % COUNT];
            sum.x = fmaf(weight, item.x, sum.x);
            sum.y = fmaf(weight, item.y, sum.y);
            sum.z = fmaf(weight, item.z, sum.z);
            sum.w = fmaf(weight, item.w, sum.w);
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int quad = first + i * THREADS;
        if (quad < end) store(first_row + quad / QUADS, quad % QUADS * 4, sums[i]);
    }
}

/// Merges rows [0, rows) of all parts: O, the sum of the parts' rows, each weighted by its share of l, and lse = m + log(l), go
/// to `store(row, column, four columns)` and `store_lse(row, m, l)`. `sink(row)`: a logit that takes part in l alone. `shared` has
/// `room` floats, at least two for each part.
template <int THREADS, int COLUMNS, class Sink, class Store, class StoreLse>
__device__ __forceinline__ void merge_parts(const Parts<COLUMNS>& parts, int rows, float* shared, int room, Sink sink, Store store,
                                            StoreLse store_lse) {
    constexpr int QUADS = COLUMNS / 4, LANES = 8;  // LANES share the weights of a row
    const int count = parts.count, at_once = min(room / (2 * count), rows);
    for (int begin = 0; begin < rows; begin += at_once) {
        const int here = min(at_once, rows - begin);
        float *const weights = shared, *const sums = shared + here * count;  // [row, part]
        __syncthreads();  // all have left what was there
        if (parts.row_max != nullptr) {
#pragma unroll 1
            for (int i = threadIdx.x; i < here * count; i += THREADS) {
                const int row = small_quotient(i, count);
                const long long place = parts.place(i - row * count, 1) + begin + row;
                weights[i] = __ldcg(parts.row_max + place);
                sums[i] = __ldcg(parts.row_sum + place);
            }
            __syncthreads();
            // The share of each part in l. All lanes go as often through the loop, since they exchange values.
#pragma unroll 1
            for (int first = 0; first < here; first += THREADS / LANES) {
                const int row = first + threadIdx.x / LANES, lane = threadIdx.x % LANES;
                const bool exists = row < here;
                float* const own = weights + row * count;
                const float logit = exists ? sink(begin + row) : NEGATIVE_INFINITY;
                float top = logit, sum = 0;
                for (int part = lane; exists && part < count; part += LANES) top = fmaxf(top, own[part]);
#pragma unroll
                for (int distance = 1; distance < LANES; distance *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
                const float base = top == NEGATIVE_INFINITY ? 0.0f : top;  // of a row without keys all weigh 0
                for (int part = lane; exists && part < count; part += LANES) {
                    const float weight = expf(own[part] - base) * sums[row * count + part];
                    own[part] = weight;
                    sum += weight;
                }
#pragma unroll
                for (int distance = 1; distance < LANES; distance *= 2) sum += __shfl_xor_sync(~0u, sum, distance);
                sum += logit == NEGATIVE_INFINITY ? 0.0f : expf(logit - base);
                const float factor = sum == 0 ? 0.0f : 1.0f / sum;
                // Here and not after the sums: where one part alone has met keys, its share is 1, and its row stays as it is.
                for (int part = lane; exists && part < count; part += LANES) own[part] *= factor;
                if (exists && lane == 0) store_lse(begin + row, top, sum);
            }
        } else {
            for (int i = threadIdx.x; i < here * count; i += THREADS) weights[i] = 1;
        }
        __syncthreads();
        // Few rows have many parts, and the other way round: in both cases 16 loads are on their way.
        const int end = here * QUADS;
        for (int i = threadIdx.x; i < end; i += end <= THREADS ? THREADS : 4 * THREADS) {
            if (end <= THREADS)
                sum_parts<THREADS, 1, 16>(parts, weights, begin, i, end, store);
            else
                sum_parts<THREADS, 4, 4>(parts, weights, begin, i, end, store);
        }
    }
}
