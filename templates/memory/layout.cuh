// Tiles in shared memory: no padding, and an access of eight rows at one column meets all 32 banks.

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

/// A tile of ROW_COUNT rows (a multiple of 8) of BYTES_A_ROW bytes (a multiple of 32), cut by columns into panels: as
/// many of 128 bytes as fit, then one of 64, then one of 32. Within a panel rows follow each other, and the number of a
/// 16-byte chunk is XORed with the number of its 128-byte line, as far as the panel has chunks.
template <int ROW_COUNT, int BYTES_A_ROW>
struct SharedTile {
    static constexpr int ROWS = ROW_COUNT, ROW_BYTES = BYTES_A_ROW, BYTES = ROWS * ROW_BYTES;
    static constexpr int CHUNKS = ROW_BYTES / 16;
    static constexpr int WIDE_END = CHUNKS / 8 * 8;                         // chunks in panels of 128 bytes
    static constexpr int HALF_END = WIDE_END + (CHUNKS - WIDE_END) / 4 * 4;  // and in the one of 64

    /// The address of a chunk is that of the row's chunk 0, XOR a constant, plus a constant for the panel and for whole
    /// groups of 8 rows. The part that isn't constant, for each width of panel; what isn't used costs nothing.
    struct Lane {
        unsigned wide, half, quarter;
    };

    /// Offset of a row's chunk within a panel of WIDTH bytes.
    template <int WIDTH>
    static __device__ __forceinline__ unsigned in_panel(unsigned row, unsigned chunk) {
        const unsigned line = row / (128 / WIDTH);
        return row * WIDTH + (chunk ^ line % (WIDTH / 16)) * 16;
    }

    /// Where a panel starts whose first chunk is `chunk`.
    static constexpr __device__ __forceinline__ unsigned panel(int chunk) { return chunk * 16 * ROWS; }

    /// `base` is the tile's address, a multiple of 128.
    static __device__ __forceinline__ Lane lane(unsigned base, int row, int chunk) {
        return {base + in_panel<128>(row, chunk), base + in_panel<64>(row, chunk), base + in_panel<32>(row, chunk)};
    }

    /// The lane that many rows below, a multiple of 8.
    static __device__ __forceinline__ Lane down(const Lane& lane, int rows) {
        return {lane.wide + rows * 128, lane.half + rows * 64, lane.quarter + rows * 32};
    }

    /// Address of chunk `chunk` XOR the lane's own, `row` rows below the lane's own: both constants. One of the two rows
    /// must be a multiple of 8.
    static __device__ __forceinline__ unsigned at(const Lane& lane, int row, int chunk) {
        if (chunk < WIDE_END) return (lane.wide ^ (chunk ^ row) % 8 * 16) + panel(chunk / 8 * 8) + row * 128;
        if (chunk < HALF_END) return (lane.half ^ (chunk ^ row / 2) % 4 * 16) + panel(WIDE_END) + row * 64;
        return (lane.quarter ^ (chunk ^ row / 4) % 2 * 16) + panel(HALF_END) + row * 32;
    }

    /// An address, and how far it is to those of 8, 16, 24, ... rows below, in bytes a row.
    struct Place {
        unsigned address;
        int row_bytes;
    };

    /// The place of a chunk, neither it nor the row constant.
    static __device__ __forceinline__ Place place(unsigned base, int row, int chunk) {
        if (chunk < WIDE_END) return {base + panel(chunk / 8 * 8) + in_panel<128>(row, chunk % 8), 128};
        if (chunk < HALF_END) return {base + panel(WIDE_END) + in_panel<64>(row, chunk - WIDE_END), 64};
        return {base + panel(HALF_END) + in_panel<32>(row, chunk - HALF_END), 32};
    }
};
