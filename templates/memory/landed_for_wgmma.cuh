#include "memory/tma.cuh"

/// Called by each thread when its copies are in shared memory, before all meet: wgmma reads by the async proxy, which sees what was
/// written by cp.async behind a fence alone (PTX ISA, 8.4).
__device__ __forceinline__ void copies_landed() { fence_async(); }
