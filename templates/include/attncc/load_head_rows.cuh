#include "attncc/copy.cuh"
#include "attncc/head_rows.cuh"

/// Starts to load a tile of Q; all THREADS threads take part. What doesn't exist becomes zeros.
template <class QTile, int THREADS, int BYTES, class Element, class Order>
__device__ __forceinline__ void load_rows(unsigned tile, const RowPlaces<Element, Order>& places) {
    load_tile<QTile, Order, THREADS, BYTES>(tile, places.target, places.stride * sizeof(Element), places.rows);
}
