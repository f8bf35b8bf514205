"""The order of axes in memory that results take from operands."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.problem.strides import axis_order, dense, zeros_like


@pytest.mark.parametrize(
    ("shape", "strides", "order"),
    [
        ((2, 3, 5, 4), (60, 20, 4, 1), (0, 1, 2, 3)),
        ((2, 3, 5, 4), (60, 4, 12, 1), (0, 2, 1, 3)),  # [batch, length, heads, head dim], transposed
        ((2, 3, 5, 4), (180, 4, 36, 1), (0, 2, 1, 3)),  # the same, a slice of q, k and v in one array
        ((2, 3, 5, 4), (12, 4, 24, 1), (2, 0, 1, 3)),  # [length, batch, heads, head dim]
        ((2, 3, 1, 4), (12, 4, 12, 1), (0, 1, 2, 3)),  # one row: its stride says nothing
        ((1, 3, 5, 4), (0, 4, 12, 1), (0, 2, 1, 3)),
        ((2, 3, 5, 4), (0, 4, 12, 1), (0, 1, 2, 3)),  # repeats
        ((2, 3, 5, 4), (60, 20, -4, 1), (0, 1, 2, 3)),
        ((3, 5, 4), (4, 12, 1), (0, 1, 2)),  # packed
    ],
)
def test_axis_order(shape: tuple[int, ...], strides: tuple[int, ...], order: tuple[int, ...]) -> None:
    assert axis_order(shape, strides) == order


def test_arrays_without_gaps() -> None:
    assert dense((2, 3, 5, 4), (2, 0, 1, 3)) == (12, 4, 24, 1)
    like = np.zeros((5, 2, 3, 8), np.float16).transpose(1, 2, 0, 3)
    made = zeros_like((2, 3, 5, 4), np.float32, like)
    assert made.dtype == np.float32
    assert (made.shape, made.strides) == ((2, 3, 5, 4), (48, 16, 96, 4))
