#include "mask/key_span.cuh"
#include "mask/shared_tests.cuh"

/// Tests of which a warp may know that all its pairs pass: then two ends of its keys say it all, and neither rows are made
/// nor inputs asked. Else as in shared_tests.cuh.
template <class KvOrder, int M_TILES, int N_TILES>
struct KnownTests {
    static constexpr int ROWS = 2 * M_TILES, GROUPS = (N_TILES + 15) / 16;  // of 128 keys

    unsigned kept[ROWS][GROUPS];

    template <class Block>
    __device__ __forceinline__ KnownTests(const Block& block, int kv_first) {
        const KeySpan passed = block.passed(kv_first);
        if (__any_sync(~0u, passed.some())) {
            const int key = threadIdx.x % 4 * 2;
#pragma unroll
            for (int i = 0; i < ROWS * GROUPS; ++i) kept[i / GROUPS][i % GROUPS] = passed.bits(key + i % GROUPS * 128);
        } else {
            run(block, kv_first);
        }
    }

    /// Of a row and a group of 32 positions of the lane.
    __device__ __forceinline__ unsigned bits(int m, int r, int group) const { return kept[2 * m + r][group]; }

private:
    template <class Block>
    __device__ __forceinline__ void run(const Block& block, int kv_first) {
        decltype(block.row(0, 0)) rows[M_TILES][2];
        block.make_rows(rows);
        const int keys = block.context.kv_len - kv_first;  // from the tile's first on
        const Tests<KvOrder, M_TILES, N_TILES> tests(rows, keys, [&](const auto& row, int key) {
            return block.keeps(row, kv_first + key);
        });
        memcpy(kept, tests.kept, sizeof(kept));
    }
};
