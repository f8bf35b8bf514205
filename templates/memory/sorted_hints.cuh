// The pieces in which a pre-pass looks at a line of an input, to verify that its entries never decrease.
constexpr int PIECES = 64;

/// Whether all pieces of a line hold what the hint says.
__device__ __forceinline__ bool sorted_hint_holds(const unsigned char* pieces) {
    constexpr unsigned ALL = 0x01010101;
    unsigned held = ALL;
#pragma unroll
    for (int i = 0; i < PIECES / 16; ++i) {
        const uint4 four = __ldg((const uint4*)pieces + i);
        held &= four.x & four.y & four.z & four.w;
    }
    return held == ALL;
}

/// The same, false where there is no such line.
__device__ __forceinline__ bool sorted_hint_holds_if(bool inside, const unsigned char* pieces) {
    return inside && sorted_hint_holds(pieces);
}
