/// Panels `first` to `end` - 1 of K or of V, 64 columns each, in shared memory as in the tensor. Columns that the tensor doesn't have
/// become zeros.
struct Panels {
    const TensorMap& map;
    long long head_stride, batch_stride;
    int first, end;

    /// Loads the tile of ROWS keys that begins with `key`. `barrier` expects the bytes already.
    template <int ROWS, class Params>
    __device__ __forceinline__ void load(unsigned target, unsigned barrier, const Params& params, const Work& work, int key) const {
        visit_boxes<ROWS>(params, work, key, head_stride, batch_stride, [&](int row, int position, int head, int batch) {
#pragma unroll 1
            for (int panel = first; panel < end; ++panel)
                tma_load(target + (panel - first) * ROWS * 128 + row * 128, map, barrier, panel * 64, position, head, batch);
        });
    }

    /// Brings such a tile into the L2 cache, ahead of its load.
    template <int ROWS, class Params>
    __device__ __forceinline__ void fetch_ahead(const Params& params, const Work& work, int key) const {
        visit_boxes<ROWS>(params, work, key, head_stride, batch_stride, [&](int, int position, int head, int batch) {
#pragma unroll 1
            for (int panel = first; panel < end; ++panel) tma_fetch_ahead(map, panel * 64, position, head, batch);
        });
    }
};
