#include "memory/tma.cuh"
__device__ __forceinline__ void tma_fetch(const TensorMap& map, int column, int row, int head, int batch) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(column), "r"(row), "r"(head), "r"(batch) : "memory");
}
template <int COUNT>
__device__ __forceinline__ void fetch_panels(const TensorMap& map, int row, int head, int batch) {
    const int first = cluster_blocks() == 1 ? 0 : cluster_rank(), step = cluster_blocks();
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        if (i % step == first) tma_fetch(map, i * 64, row, head, batch);
}
