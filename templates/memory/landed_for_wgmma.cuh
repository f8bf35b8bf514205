#include "memory/tma.cuh"

/// Called by each thread when its copies are in shared memory, before all meet. wgmma reads through the async proxy (PTX ISA), which
/// sees what cp.async has written behind a fence alone.
__device__ __forceinline__ void copies_landed() { fence_async(); }
