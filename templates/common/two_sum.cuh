/// Adds x to the sum, and what the sum's rounding takes to `lost` (Knuth, The Art of Computer Programming, 4.2.2, Theorem B).
__device__ __forceinline__ void add_exactly(float& sum, float& lost, float x) {
    const float total = sum + x, added = total - sum;
    lost += (sum - (total - added)) + (x - added);
    sum = total;
}
