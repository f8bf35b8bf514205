"""Moves of bytes against NumPy's strided copies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from attncc.distributed import moves as module
from attncc.distributed.moves import Move, moves

SHAPES = ((2, 3, 5, 4), (1, 3, 1, 4), (2, 1, 5, 1), (1, 1, 1, 1), (4,), (2, 0, 4))


def strides(shape: tuple[int, ...], order: tuple[int, ...], gap: int) -> list[int]:
    """Of a tensor whose axes lie in this order, the last without gaps."""
    found, step = [0] * len(shape), 1
    for axis in reversed(order):
        found[axis] = step
        step = step * shape[axis] + gap
    return found


def executed(found: list[Move], source: np.ndarray, size: int) -> np.ndarray:
    target = np.zeros(4096, np.uint8)
    for move in found:
        for number in range(move.height):
            begin, end = move.source + number * move.source_pitch, move.target + number * move.target_pitch
            target[end : end + move.width] = source[begin : begin + move.width]
    assert all(move.width <= move.source_pitch and move.width <= move.target_pitch for move in found)
    return target


@pytest.mark.parametrize("most", [2**30, 24])
@pytest.mark.parametrize("shape", SHAPES)
def test_moves_copy_what_numpy_does(shape: tuple[int, ...], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", most)
    source = np.random.default_rng(0).integers(1, 256, 4096).astype(np.uint8)
    size, inner = 2, tuple(range(len(shape)))
    for order, gap in itertools.product({inner, (*reversed(inner[:-1]), inner[-1])}, (0, 8)):
        from_, to = strides(shape, order, gap), strides(shape, inner, 2 * gap)
        found = list(moves(shape, from_, to, size, (6, 10)))
        wanted = np.zeros(4096, np.uint8)
        views = [
            np.lib.stride_tricks.as_strided(x[first:].view(np.uint16), shape, [size * step for step in steps])
            for x, first, steps in ((source, 6, from_), (wanted, 10, to))
        ]
        views[1][...] = views[0]
        assert np.array_equal(executed(found, source, size), wanted)
        assert all(max(move.width, move.source_pitch, move.target_pitch) <= most for move in found)


def test_rows_of_all_heads_are_one_move() -> None:
    """As copy engines take them best: a piece for each head, or for all where nothing lies between."""
    shape, whole, own = (1, 8, 100, 64), (8 * 500 * 64, 500 * 64, 64, 1), (8 * 200 * 64, 200 * 64, 64, 1)
    assert list(moves(shape, own, whole, 2)) == [Move(0, 0, 100 * 128, 8, 200 * 128, 500 * 128)]
    assert len(list(moves(shape, whole, whole, 2))) == 1
    assert list(moves((100, 8, 64), (512, 64, 1), (512, 64, 1), 2)) == [Move(0, 0, 102400, 1, 102400, 102400)]
