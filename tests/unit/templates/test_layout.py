"""The swizzle of shared memory: every chunk has a place of its own, and no access of a kernel meets a bank twice."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from attncc.resources import read
from tests.emulator import kernel

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

ROWS = 32
ROW_BYTES = (32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 1024)  # of padded head dims, 16-bit and fp32

PROBE = """
template <int ROW_BYTES>
void fill(unsigned* addresses) {
    using Tile = SharedTile<32, ROW_BYTES>;
    for (int row = 0; row < 32; ++row)
        for (int chunk = 0; chunk < Tile::CHUNKS; ++chunk) {
            const int above = row / 8 * 8;
            *addresses++ = Tile::at(Tile::lane(0, row % 8, 0), above, chunk);
            *addresses++ = Tile::at(Tile::lane(0, 0, 0), row, chunk);
            *addresses++ = Tile::at(Tile::lane(0, row, chunk % 2), 0, chunk - chunk % 2);
            *addresses++ = Tile::at(Tile::down(Tile::lane(0, row % 8, 0), above), 0, chunk);
        }
}
extern "C" void addresses(int row_bytes, unsigned* found) {
"""


@cache
def addresses(row_bytes: int) -> np.ndarray:
    """Byte addresses [row, chunk, four ways to find the same]."""
    cases = "".join(f"    if (row_bytes == {size}) fill<{size}>(found);\n" for size in ROW_BYTES)
    library = kernel.evaluate(PROBE + cases + "}\n", read("templates", "memory", "layout.cuh"))
    found = np.zeros((ROWS, row_bytes // 16, 4), np.uint32)
    library.addresses(row_bytes, found.ctypes.data_as(ctypes.c_void_p))
    return found


@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_all_ways_to_an_address_agree(row_bytes) -> None:
    found = addresses(row_bytes)
    np.testing.assert_array_equal(found, np.broadcast_to(found[..., :1], found.shape))


@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_chunks_fill_the_tile_without_waste(row_bytes) -> None:
    np.testing.assert_array_equal(np.sort(addresses(row_bytes)[..., 0], axis=None), np.arange(0, ROWS * row_bytes, 16))


@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_eight_rows_at_a_chunk_meet_all_banks(row_bytes) -> None:
    """ldmatrix reads rows 8i..8i+7 of one chunk at once; so do the Q loads of the fp32 product."""
    banks = addresses(row_bytes)[..., 0].reshape(ROWS // 8, 8, -1) // 16 % 8
    np.testing.assert_array_equal(np.sort(banks, axis=1), np.broadcast_to(np.arange(8)[:, None], banks.shape))


@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_every_other_row_meets_no_bank_twice(row_bytes) -> None:
    """K loads of the fp32 product: the lanes of a quad read rows 0, 2, 4, 6 or 1, 3, 5, 7."""
    banks = addresses(row_bytes)[..., 0].reshape(ROWS // 8, 4, 2, -1) // 16 % 8
    assert (np.diff(np.sort(banks, axis=1), axis=1) > 0).all()
