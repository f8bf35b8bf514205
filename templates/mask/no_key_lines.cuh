/// No test of pairs reads inputs at keys. The interface is that of kept_key_lines.cu.j2.
struct KeyLineTests {
    template <class Block, class AnyTile>
    __device__ __forceinline__ void load_ahead(const Block&, const AnyTile&) {}
    template <class Block, class AnyScores>
    __device__ __forceinline__ void test_pairs(const Block&, int, AnyScores&) const {}
    __device__ __forceinline__ void discard() {}
};
