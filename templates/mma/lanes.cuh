// Where lanes read the fragments of tiles in shared memory (mma_16bit.cuh).

/// Of a tile of K.
template <class KTile>
__device__ __forceinline__ typename KTile::Lane key_lane(unsigned keys, int lane) {
    return KTile::lane(keys, lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/// Of a tile of Q, from `first_row` on.
template <class QTile>
__device__ __forceinline__ typename QTile::Lane query_lane(unsigned queries, int first_row, int lane) {
    return QTile::lane(queries, first_row + lane % 16, lane / 16);
}
