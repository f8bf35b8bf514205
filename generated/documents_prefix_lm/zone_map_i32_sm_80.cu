// zone_map: least and greatest entry of each block of an i32 input
// Written by attncc 0.1.0. Do not edit.

constexpr int WARPS = 128 / 32;

struct Params {
    const int *input;
    int *minimum, *maximum;
    long long stride0, stride1, stride2, stride3;
    int size0, size1, size2, size3;
    int block;
};

/// The least and the greatest entry of each block of `params.block` entries of the last axis. A warp takes a block at a
/// time: its lanes share the entries, then meet by shuffles.
template <class Element>
__device__ void find_extremes(const Params& params, const Element* input, Element* minimum, Element* maximum) {
    using Wide = decltype(Element() + 0);  // shuffles take no type narrower than an int
    const int lane = threadIdx.x % 32, blocks = (params.size3 + params.block - 1) / params.block;
    const long long zones = (long long)params.size0 * params.size1 * params.size2 * blocks;
    for (long long zone = blockIdx.x * WARPS + threadIdx.x / 32; zone < zones; zone += gridDim.x * WARPS) {
        const long long line = zone / blocks, plane = line / params.size2;
        const Element* row = input + plane / params.size1 * params.stride0 + plane % params.size1 * params.stride1 +
                             line % params.size2 * params.stride2;
        const int first = zone % blocks * params.block, end = min(first + params.block, params.size3);
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
            minimum[zone] = least;
            maximum[zone] = greatest;
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) zone_map(const __grid_constant__ Params params) {
    find_extremes(params, params.input, params.minimum, params.maximum);
}
