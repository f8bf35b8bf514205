"""Affine forms, and the facts that bound them over all tiles."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.algebra.affine import Affine, Facts
from attncc.analysis.grid_2d import TileAxis
from attncc.ir import MAX_LENGTH, symbol

X, Y = symbol("q_idx"), symbol("kv_idx")


def test_sums_drop_what_cancels() -> None:
    form = Affine({X: 2, Y: -1}, 5).plus(Affine({X: 1, Y: 3}, 1), -2)
    assert (form.terms, form.const) == ({Y: -7}, 3)
    assert Affine({X: 1}).times(0).terms == {}


def test_the_key_leaves_the_constant_out() -> None:
    assert Affine({X: 2, Y: 1}, 5).key == Affine({Y: 1, X: 2}, -3).key != Affine({X: 2, Y: -1}, 5).key
    assert (Affine({X: 6, Y: -4}).divisor, Affine({}, 7).divisor) == (2, 0)


@pytest.mark.parametrize(
    ("terms", "low", "high"),
    [
        ({"q_last": 1, "q_len": -1}, -MAX_LENGTH, -1),
        ({"q_last": 1, "q_first": -1}, 0, 15),
        ({"q_idx": 1, "q_first": -1}, 0, 15),
        ({"q_idx": 1, "q_last": -1}, -15, 0),
        ({"q_first": 1, "q_last": 1}, 0, 2 * MAX_LENGTH - 2),
        ({"q_len": 1, "q_first": -1}, 1, MAX_LENGTH),
        ({"q_len": 1}, 0, MAX_LENGTH),
    ],
)
def test_facts_are_exact(terms: dict[str, int], low: int, high: int) -> None:
    assert Facts(TileAxis("q", 16)).range(terms) == (low, high)


def test_no_tile_leaves_the_range_of_a_form() -> None:
    random = np.random.default_rng(5)
    names = ("kv_idx", "kv_first", "kv_last", "kv_len")
    for _ in range(300):
        block = int(random.integers(1, 40))
        terms = {name: int(c) for name, c in zip(names, random.integers(-3, 4, 4), strict=True) if c}
        found = Facts(TileAxis("kv", block)).range(terms)
        length = random.integers(1, 200, 500)
        first = (random.random(500) * length).astype(int)
        last = np.minimum(first + random.integers(0, block, 500), length - 1)
        index = random.integers(first, last + 1)
        values = sum(
            c * {"kv_idx": index, "kv_first": first, "kv_last": last, "kv_len": length}[n] for n, c in terms.items()
        )
        assert found.low <= np.min(values) and np.max(values) <= found.high, (block, terms)
