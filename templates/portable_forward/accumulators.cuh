/// Where the unfinished rows of a warp live between two tiles of keys: O (contiguous rows of COLUMNS), l and m in HBM. The
/// pointers are those of the warp's first row, `rows` says how many exist. Each lane stores and loads its own part of O.
template <int COLUMNS>
struct Accumulators {
    float *out, *row_max, *row_sum;
    int rows;

    template <class Visit, int M_TILES, int D_TILES>
    __device__ __forceinline__ void each_pair(Visit visit, float (&x)[M_TILES][D_TILES][4]) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int row_pair = 0; row_pair < 2 * M_TILES; ++row_pair) {
            const int row = 8 * row_pair + lane / 4, r = row_pair % 2;
            float* address = out + row * (long long)COLUMNS + lane % 4 * 2;
#pragma unroll
            for (int d = 0; d < D_TILES; ++d)
                if (row < rows && 8 * d < COLUMNS)
                    visit(reinterpret_cast<float2*>(address + 8 * d), x[row_pair / 2][d][2 * r], x[row_pair / 2][d][2 * r + 1]);
        }
    }

    template <int M_TILES, int D_TILES>
    __device__ __forceinline__ void load(float (&x)[M_TILES][D_TILES][4]) const {
        each_pair([](const float2* address, float& first, float& second) {
            const float2 pair = *address;
            first = pair.x;
            second = pair.y;
        }, x);
    }

    template <int M_TILES, int D_TILES>
    __device__ __forceinline__ void store(float (&x)[M_TILES][D_TILES][4]) const {
        each_pair([](float2* address, float first, float second) { *address = make_float2(first, second); }, x);
    }

    template <int M_TILES>
    __device__ __forceinline__ void load(Normalizer<M_TILES>& normalizer) const {
        each_row<M_TILES>([&](int m, int r, int row) {
            if (row < rows) normalizer.load_row(m, r, row_max[row], row_sum[row]);
        });
    }

    /// All lanes must call.
    template <int M_TILES>
    __device__ __forceinline__ void store(const Normalizer<M_TILES>& normalizer) const {
        each_row<M_TILES>([&](int m, int r, int row) {
            float max, sum;
            normalizer.read_row(m, r, max, sum);
            if (row < rows && threadIdx.x % 4 == 0) {
                row_max[row] = max;
                row_sum[row] = sum;
            }
        });
    }

private:
    template <int M_TILES, class Visit>
    static __device__ __forceinline__ void each_row(Visit visit) {
#pragma unroll
        for (int row = 0; row < 2 * M_TILES; ++row) visit(row / 2, row % 2, 8 * row + threadIdx.x % 32 / 4);
    }
};
