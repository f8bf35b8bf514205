/// Moves the first STEP column tiles behind the others.
template <int STEP, class Word, int N_TILES, int WORDS>
__device__ __forceinline__ void rotate_columns(Word (&tiles)[N_TILES][WORDS]) {
    Word first[STEP][WORDS];
    memcpy(first, tiles, sizeof(first));
#pragma unroll
    for (int i = 0; i < WORDS * (N_TILES - STEP); ++i) tiles[i / WORDS][i % WORDS] = tiles[i / WORDS + STEP][i % WORDS];
    memcpy(tiles[N_TILES - STEP], first, sizeof(first));
}
