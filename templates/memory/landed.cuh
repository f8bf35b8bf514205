/// Called by each thread when its copies are in shared memory, before all meet: nothing, where they read by ordinary loads.
__device__ __forceinline__ void copies_landed() {}
