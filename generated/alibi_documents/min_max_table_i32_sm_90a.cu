// min_max_table: extremes of blocks, and whether hints hold, of an i32 input
// Written by attncc 0.2.0. Do not edit.
//
// Contents, by line:
//    11  leaf code: sorted_hints.cuh 11
//    17  parameters
//    32  min/max tables
//    61  sorted hints
//   101  the kernel

// ---- sorted_hints.cuh
// The pieces in which a pre-pass looks at a line of an input, to verify that its entries never decrease.
constexpr int PIECES = 64;

constexpr int WARPS = 256 / 32;

struct Params {
    const int *input;
    int *minimum, *maximum;
    unsigned char *holds;
    const int *starts;
    long long stride0, stride1, stride2, stride3;
    int size0, size1, size2, size3, block, checked, sequences;
};

template <class Element> __device__ const Element* line_of(const Params& params, const Element* input, long long line) {
    const long long plane = line / params.size2;
    return input + plane / params.size1 * params.stride0 + plane % params.size1 * params.stride1 +
           line % params.size2 * params.stride2;
}

// ---------------------------------------------------------------- min/max tables

/// The least and the greatest entry of each block of `params.block` entries of the last axis. A warp takes a block at a
/// time: its lanes share the entries, then meet by shuffles.
template <class Element>
__device__ void find_extremes(const Params& params, const Element* input, Element* minimum, Element* maximum) {
    using Wide = decltype(Element() + 0);  // shuffles take no type narrower than an int
    const int lane = threadIdx.x % 32, blocks = (params.size3 + params.block - 1) / params.block;
    const long long entries = (long long)params.size0 * params.size1 * params.size2 * blocks;
    for (long long entry = blockIdx.x * WARPS + threadIdx.x / 32; entry < entries; entry += gridDim.x * WARPS) {
        const Element* row = line_of(params, input, entry / blocks);
        const int first = entry % blocks * params.block, end = min(first + params.block, params.size3);
        Wide least = row[first * params.stride3], greatest = least;
        for (int index = first + lane; index < end; index += 32) {
            const Wide x = row[index * params.stride3];
            least = min(least, x);
            greatest = max(greatest, x);
        }
        for (int distance = 16; distance > 0; distance /= 2) {
            least = min(least, __shfl_xor_sync(~0u, least, distance));
            greatest = max(greatest, __shfl_xor_sync(~0u, greatest, distance));
        }
        if (lane == 0) {
            minimum[entry] = least;
            maximum[entry] = greatest;
        }
    }
}

// ---------------------------------------------------------------- sorted hints

/// Whether a sequence of a packed batch starts at this place: the entry before it belongs to another.
__device__ bool starts_sequence(const Params& params, int place) {
    if (params.starts == nullptr) return false;
    int low = 0, high = params.sequences;  // the first start that isn't before the place
    while (low < high) {
        const int middle = (low + high) / 2;
        if (params.starts[middle] < place)
            low = middle + 1;
        else
            high = middle;
    }
    return params.starts[low] == place;
}

/// For each piece of a line whether none of its entries is below the one before it in the sequence. Of the line, the first
/// `params.checked` entries are looked at. A block takes a piece at a time.
template <class Element>
__device__ void verify_nondecreasing(const Params& params, const Element* input, unsigned char* holds) {
    const long long pieces = (long long)params.size0 * params.size1 * params.size2 * PIECES;
    const int length = (params.checked + PIECES - 1) / PIECES;
    for (long long piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const Element* line = line_of(params, input, piece / PIECES);
        const int begin = piece % PIECES * length, end = min(begin + length, params.checked);
        const int first = max(begin, 1) + threadIdx.x;
        auto falls = [&](int place) { return line[place * params.stride3] < line[(place - 1) * params.stride3]; };
        bool fallen = false;
#pragma unroll 8
        for (int place = first; place < end; place += 32 * WARPS) fallen |= falls(place);
        if (fallen) {  // seldom: was it between two sequences?
            fallen = false;
            for (int place = first; place < end; place += 32 * WARPS) fallen |= falls(place) && !starts_sequence(params, place);
        }
        const bool held = __syncthreads_and(!fallen);
        if (threadIdx.x == 0) holds[piece] = held;
    }
}

/// What masks ask of an input: min/max tables, whether a sorted hint holds, or both. What isn't asked for is null.
extern "C" __global__ void __launch_bounds__(32 * WARPS) min_max_table(const __grid_constant__ Params params) {
    if (params.minimum != nullptr) find_extremes(params, params.input, params.minimum, params.maximum);
    if (params.holds != nullptr) verify_nondecreasing(params, params.input, params.holds);
}
