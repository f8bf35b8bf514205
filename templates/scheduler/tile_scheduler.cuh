#include "scheduler/grid.cuh"

/// The block to work on after `index`, -1 if none is left: where all take alike long, each thread block has its share.
/// The warp calls together. Thread blocks ask until they are told -1: as none asks for its first block, there are
/// `blocks` questions in all, and the last brings the counter back to the 0 where the first found it.
template <class Params>
__device__ __forceinline__ int next_work_tile(const Params& params, int index) {
    if (params.next_block == nullptr)
        index += gridDim.x;
    else if (threadIdx.x % 32 == 0)
        index = atomicInc(params.next_block, params.blocks - 1) + gridDim.x;
    return __shfl_sync(~0u, index < params.blocks ? index : -1, 0);
}
