#include "memory/tma.cuh"

/// As `tma_load`, of a map whose rows have two axes: (column, inner row, outer row, head, batch).
__device__ __forceinline__ void tma_load_5d(unsigned target, const TensorMap& map, unsigned barrier, int column, int inner,
                                            int outer, int head, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(target),
        "l"(&map), "r"(barrier), "r"(column), "r"(inner), "r"(outer), "r"(head), "r"(batch)
        : "memory");
}

/// Brings such a box into the L2 cache, ahead of its load.
__device__ __forceinline__ void tma_fetch_5d_ahead(const TensorMap& map, int column, int inner, int outer, int head, int batch) {
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map), "r"(column),
                 "r"(inner), "r"(outer), "r"(head), "r"(batch)
                 : "memory");
}
