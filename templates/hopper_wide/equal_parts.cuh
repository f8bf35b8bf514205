/// As many units for an item of so many tiles that `parts` equal runs end where it does. They are tiles, or a bit less each.
__device__ __forceinline__ int in_equal_parts(int parts, int tiles) {
    return tiles < parts ? tiles : (unsigned)(tiles + parts - 1) / parts * parts;
}
