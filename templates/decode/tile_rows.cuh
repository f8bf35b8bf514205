#include "memory/layout.cuh"

/// Some rows of a tile that lies in shared memory whole: a panel's rows are followed by those of its next ones.
template <int ROW_COUNT, class WholeTile>
struct TileRows : WholeTile {
    using Whole = WholeTile;
    static constexpr int ROWS = ROW_COUNT;
    static constexpr int STEP = ROWS * 128;  // bytes from those rows to the next
};
