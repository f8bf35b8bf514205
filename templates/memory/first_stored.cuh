#include "scheduler/row_blocks.cuh"

// A sum whose first part was stored, see first_stores.cuh.

/// Whether anything was stored of a row block, as of all in its tile. All others are 0, whatever memory holds.
template <class Params>
__device__ __forceinline__ bool has_sum(const Params& params, int row_block) {
    return params.dq_stored == nullptr || params.dq_stored[row_block / ALIGNED_BLOCKS] != 0;
}
