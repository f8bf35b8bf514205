#include "memory/barrier.cuh"

// The tensor memory accelerator: one thread asks for a box of a tensor, which arrives swizzled in shared memory as a
// panel of a `SharedTile`. Maps are made by the launcher: axes (column, row, head, batch), boxes of 64 columns.

struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map));
}

/// The coordinate of entry `index` of an axis. Entries that share memory, their stride being 0, are one to the map.
__device__ __forceinline__ int coordinate(int index, long long stride) { return stride == 0 ? 0 : index; }

/// The box from (column, row) on, with the map's number of rows; columns and rows outside the tensor become zeros.
__device__ __forceinline__ void tma_load(unsigned target, const TensorMap& map, unsigned barrier, int column, int row,
                                         int head, int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];"
                 ::"r"(target), "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch) : "memory");
}

/// Bytes as they are, a multiple of 16. `barrier` expects them already.
__device__ __forceinline__ void bulk_load(unsigned target, const void* source, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}

/// Stores bytes as they are; returns when they have been read, so that others may take their place.
__device__ __forceinline__ void bulk_store(void* target, unsigned source, int bytes) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
        "cp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group.read 0;" ::"l"(target), "r"(source), "r"(bytes)
        : "memory");
}

/// Orders this thread's ordinary accesses to shared memory before later ones by TMA and wgmma.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
