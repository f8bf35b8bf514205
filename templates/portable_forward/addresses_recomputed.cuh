#include "mma/lanes.cuh"

/// Where a lane reads Q, K and V, computed again at each use. See addresses_ahead.cuh for the other way.
template <class, int>
struct FragmentAddresses {
    template <class QTile>
    __device__ __forceinline__ typename QTile::Lane query(unsigned queries, int first_row) const {
        return query_lane<QTile>(queries, first_row, threadIdx.x % 32);
    }

    template <class KTile>
    __device__ __forceinline__ typename KTile::Lane key(unsigned keys) const {
        return key_lane<KTile>(keys, threadIdx.x % 32);
    }

    __device__ __forceinline__ int values() const { return lane_of_values(); }
};
