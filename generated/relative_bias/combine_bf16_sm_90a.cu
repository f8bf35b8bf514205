// combine: merges the partial results of splits; bf16
// Written by attncc 0.2.0. Do not edit.
//
// Contents, by line:
//    15  leaf code: element.cuh 15, math.cuh 19, bf16.cuh 36, finished.cuh 50, output.cuh 64
//    87  parameters: add_weighted 95, weigh 104
//   123  the kernel
//   138    Flash-Decoding, step 3: the share of each split in l, and lse = m + log(l).
//   153    Flash-Decoding, step 3: O, the sum of what all splits found, each times its share.

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

// ---- element.cuh
// 16-bit floats as raw bits: NVRTC has no cuda_fp16.h.
struct bf16 { unsigned short bits; };

// ---- math.cuh
#define NEGATIVE_INFINITY (-__int_as_float(0x7f800000))  // no literal without headers

/// How exponents become probabilities with 16-bit operands: powers of 2, UNIT of them in a natural unit. Where a row's
/// largest exponent begins, and how far it may grow: normalize_softmax.cuh.
struct PowersOfTwo {};

DEVICE float warp_max(float x) {
    UNROLL for (int distance = 16; distance; distance /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

DEVICE float warp_sum(float x) {
    UNROLL for (int distance = 16; distance; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

// ---- bf16.cuh
struct Dtype : PowersOfTwo {
    using Element = bf16;
    static constexpr int WORDS = 1;  // of 32 bits, for two neighbouring columns

    static DEVICE unsigned pack(float low, float high) {
        unsigned word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }

    static DEVICE void words(unsigned (&word)[1], float x, float y) { word[0] = pack(x, y); }
};

// ---- finished.cuh
// A kernel that begins before the one ahead of it is done (programmatic dependent launch), and waits for what it needs of it:
// the one ahead counts what is finished.
//
// Nobody waits for good. Blocks of a launch behind are given room only when all blocks of this one have begun, each by
// `let_others_begin`, or have ended: who counts has its multiprocessor by then, and waits for nothing that comes behind.
//
// What has been added is seen. A warp's additions come before its `count_finished`: `__syncwarp` orders those of all lanes
// before the lane that counts, whose release makes them visible with the count. Who finds the whole count acquires it, and
// `__syncthreads` hands that on to the thread block.

/// The kernel ahead is done, and all that it wrote is visible.
DEVICE void wait_for_kernel_ahead() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- output.cuh
DEVICE void store_vector(void* target, const unsigned (&x)[2]) {
    *static_cast<uint2*>(target) = make_uint2(x[0], x[1]);
}

DEVICE void store_vector(void* target, const unsigned (&x)[4]) {
    *static_cast<uint4*>(target) = make_uint4(x[0], x[1], x[2], x[3]);
}

/// Stores four neighbouring columns.
template <class Stored> DEVICE void store_four(typename Stored::Element* target, float4 x) {
    unsigned low[Stored::WORDS], high[Stored::WORDS], all[2 * Stored::WORDS];
    Stored::words(low, x.x, x.y);
    Stored::words(high, x.z, x.w);
#pragma unroll
    for (int word = 0; word < Stored::WORDS; ++word) all[word] = low[word], all[Stored::WORDS + word] = high[word];
    store_vector(target, all);
}

constexpr int WARPS = 128 / 32;
constexpr int MAX_HEAD_DIM = 256, MAX_SPLITS = 256;
constexpr int WARP_SPLITS = 8;  // a warp merges so many alone; more are shared by all of the block

struct Params {
    const float *partial_out, *row_max, *row_sum;
    bf16 *out;
    float *lse;
    long long out_stride_batch, out_stride_head, out_stride_row;
    int batch, num_heads, q_len, splits, value_head_dim;
};

DEVICE void add_weighted(float4& sum, float weight, float4 x) {
    sum.x = fmaf(weight, x.x, sum.x);
    sum.y = fmaf(weight, x.y, sum.y);
    sum.z = fmaf(weight, x.z, sum.z);
    sum.w = fmaf(weight, x.w, sum.w);
}

/// The shares of a row's normaliser that its splits found, l_s exp(m_s - m), one for each of `weights`. Returns l, their sum;
/// `top` is m, the largest m_s, -inf where none has met a key. All lanes of the warp must call.
DEVICE float weigh(float* weights, float& top, const float* row_max, const float* row_sum, int splits, int rows) {
    const int lane = threadIdx.x % 32;
    float sum = 0;
    top = NEGATIVE_INFINITY;
    NO_UNROLL for (int split = lane; split < splits; split += 32) top = fmaxf(top, row_max[(long long)split * rows]);
    top = warp_max(top);
    NO_UNROLL for (int split = lane; split < splits; split += 32) {
        const long long place = (long long)split * rows;
        // A split that met no key has m = -inf, and weighs 0. Where lengths or pages can't be, m is NaN, and so is all of the row.
        const float weight = row_max[place] == NEGATIVE_INFINITY ? 0.0f : row_sum[place] * expf(row_max[place] - top);
        weights[split] = weight;
        sum += weight;
    }
    return warp_sum(sum);
}

/// Flash-Decoding's reduction: row i of the output is the sum of its splits' rows, each weighted by its share of the
/// normaliser; where there is none (`row_max` is null) they just add up. A warp takes a row at a time. Where there are many
/// splits, the warps of a block share a row: each adds up a share of them. All sums have one order.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 8) combine(const __grid_constant__ Params params) {
    extern __shared__ __align__(16) unsigned char shared[];
    wait_for_kernel_ahead();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, splits = params.splits, columns = params.value_head_dim;
    float* const shares = (float*)shared;  // [WARPS, columns]
    float* const weights = shares + WARPS * MAX_HEAD_DIM + warp * MAX_SPLITS;  // the warp's own
    const bool together = splits > WARP_SPLITS;
    const int workers = together ? 1 : WARPS;  // rows that a block works on at once
    const int share_size = together ? (splits + WARPS - 1) / WARPS : splits, first = together ? warp * share_size : 0;
    const int last = min(first + share_size, splits);
    const int rows = params.batch * params.num_heads * params.q_len;  // partial results of more than an int counts fit no GPU
    const long long split_stride = (long long)rows * columns;
    NO_UNROLL for (int split = lane; split < splits; split += 32) weights[split] = 1;
    NO_UNROLL for (int row = blockIdx.x * workers + (together ? 0 : warp); row < rows; row += gridDim.x * workers) {
        __syncwarp();  // all lanes have read the weights of the row before
        // Flash-Decoding, step 3: the share of each split in l, and lse = m + log(l).
        if (params.row_max != nullptr) {
            float top;
            const float sum = weigh(weights, top, params.row_max + row, params.row_sum + row, splits, rows);
            if (lane == 0 && params.lse != nullptr) params.lse[row] = top + logf(sum);
            const float factor = sum == 0 ? 0.0f : 1.0f / sum;
            // Here and not after the sums: where one split alone has met keys, l_s / l is 1, and its row stays as it is.
            NO_UNROLL for (int split = lane; split < splits; split += 32) weights[split] *= factor;
        }
        __syncwarp();
        if (together) __syncthreads();  // all warps have read the shares of the row before

        const int pair = row / params.q_len, batch = pair / params.num_heads;
        auto* out = params.out + batch * params.out_stride_batch + pair % params.num_heads * params.out_stride_head +
                    row % params.q_len * params.out_stride_row;
        // Flash-Decoding, step 3: O, the sum of what all splits found, each times its share.
        NO_UNROLL for (int column = 4 * lane; column < columns; column += 128) {
            const float* partial = params.partial_out + first * split_stride + (long long)row * columns + column;
            float4 sum = {};
#pragma unroll 8
            for (int split = first; split < last; ++split, partial += split_stride)
                add_weighted(sum, weights[split], *(const float4*)partial);
            if (together) {
                *(float4*)(shares + warp * columns + column) = sum;
            } else {
                store_four<Dtype>(out + column, sum);
            }
        }
        if (!together) continue;
        __syncthreads();
        NO_UNROLL for (int column = 4 * threadIdx.x; column < columns; column += 128 * WARPS) {
            float4 sum = {};
#pragma unroll 1
            for (int of = 0; of < WARPS; ++of) add_weighted(sum, 1, *(const float4*)(shares + of * columns + column));
            store_four<Dtype>(out + column, sum);
        }
    }
}
