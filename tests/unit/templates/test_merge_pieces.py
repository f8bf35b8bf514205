"""Who merges which rows of an item (merge_pieces.cuh): warps of the emulated GPU stand for thread blocks at once."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from attncc.codegen.render import assemble
from tests.emulator import kernel

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

TEXT = """
static unsigned counter;
static int parts, rows, *come, *seen, *taken;  // [block]; what each saw of `come` when it had its pieces, and these
static const int* patience;                    // [block]: how long it takes to come; below 0, it can't wait

static void body() {
    const int block = threadIdx.x / 32;
    for (int i = abs(patience[block]); i > 0; --i) yield();
    if (threadIdx.x % 32 != 0) return;
    come[block] = 1;
    const unsigned own = MergePieces(parts, rows).come(&counter, parts, patience[block] >= 0);
    taken[block] = own;
    for (int other = 0; other < parts; ++other) seen[block] += come[other];
}

extern "C" unsigned run(int of_parts, int of_rows, const int* of_patience, int* of_come, int* of_seen, int* of_taken,
                        int seed) {
    parts = of_parts, rows = of_rows, patience = of_patience, come = of_come, seen = of_seen, taken = of_taken;
    launch(body, 1, 32 * parts, 1024, seed, 1, 0);
    return counter;
}

extern "C" int end_of(unsigned own, int first) { return MergePieces::end(own, first); }

extern "C" int pieces(int of_parts, int of_rows, int* size) {
    const MergePieces pieces(of_parts, of_rows);
    *size = pieces.size;
    return pieces.count;
}
"""


@cache
def library() -> ctypes.CDLL:
    leaf = assemble('#include "decode/merge_pieces.cuh"\n', "pieces")
    before = '#include "hopper.hpp"\nstatic int small_quotient(int n, int d) { return n / d; }\n'
    return kernel.evaluate(TEXT, before + leaf)


def cut(parts: int, rows: int) -> tuple[int, int]:
    size = ctypes.c_int()
    count = library().pieces(parts, rows, ctypes.byref(size))
    return count, size.value


def pieces_of(parts: int, rows: int, patience: np.ndarray, seed: int) -> np.ndarray:
    """The pieces of each block, as bits. Who has some, has them when all have come."""
    come, seen, taken = (np.zeros(parts, np.int32) for _ in range(3))
    arrays = (array.ctypes.data_as(ctypes.c_void_p) for array in (patience.astype(np.int32), come, seen, taken))
    assert library().run(parts, rows, *arrays, seed) == 0, "the next launch would find a counter other than 0"
    assert (seen[taken != 0] == parts).all()
    return taken


@pytest.mark.parametrize("parts", [2, 3, 17, 40])
@pytest.mark.parametrize("rows", [1, 4, 8, 13, 64])
@pytest.mark.parametrize("longest", [0, 5, 90, 400])
def test_each_piece_is_merged_once(parts: int, rows: int, longest: int) -> None:
    """Who waits up to a hundred looks may find that others come later, and goes away; some can't wait at all."""
    count, size = cut(parts, rows)
    assert count * size >= rows > (count - 1) * size
    random = np.random.default_rng(parts * rows + longest)
    for seed in range(6):
        patience = random.integers(-longest // 3, longest + 1, parts)
        taken = pieces_of(parts, rows, patience, seed)
        bits = [piece for own in taken.tolist() for piece in range(32) if own >> piece & 1]
        assert sorted(bits) == list(range(count))


def test_blocks_share_pieces_where_all_come_soon() -> None:
    assert cut(40, 8) == (8, 1)
    assert sorted(pieces_of(40, 8, np.zeros(40), 1).tolist()) == [0] * 32 + [1 << piece for piece in range(8)]


def test_no_more_pieces_than_blocks() -> None:
    """Of two parts of 64 rows each block merges half, if both can wait."""
    assert cut(2, 64) == (2, 32)
    assert sorted(pieces_of(2, 64, np.zeros(2), 1).tolist()) == [1, 2]


@pytest.mark.parametrize("own", range(256))
def test_pieces_that_follow_one_another(own: int) -> None:
    for first in range(8):
        end = library().end_of(own, first)
        bits = [own >> piece & 1 for piece in range(9)]
        assert all(bits[first:end]) and not bits[end]


def test_few_rows_are_one_piece_for_the_last_to_come() -> None:
    assert cut(8, 4) == (1, 4)
    late = np.where(np.arange(8) == 5, 300, 0)
    assert np.flatnonzero(pieces_of(8, 4, late, 1)).tolist() == [5]
