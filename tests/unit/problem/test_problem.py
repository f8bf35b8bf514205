from __future__ import annotations

import numpy as np

from attncc.problem import Problem

DENSE = Problem(3, 8, 2, 100, 70, 64, 32)
PACKED = Problem(3, 8, 2, 100, 70, 64, 32, "bshd", packed=True)


def test_sizes() -> None:
    assert (DENSE.group, DENSE.total_q) == (4, 300)
    assert PACKED.total_q == 100
    assert (DENSE.q_blocks(64), PACKED.q_blocks(64)) == (2, 4)


def test_shapes_of_results() -> None:
    assert DENSE.out_shape == (3, 8, 100, 32)
    assert DENSE.lse_shape == (3, 8, 100)
    assert PACKED.out_shape == (100, 8, 32)
    assert PACKED.lse_shape == (8, 100)


def test_sequences() -> None:
    assert [tuple(sequence) for sequence in DENSE.sequences()] == [(b, 0, 100, 0, 70, -30) for b in range(3)]
    known = PACKED.with_starts((0, 10, 10, 90), (5, 20, 40, 70))
    assert [tuple(s) for s in known.sequences()] == [
        (0, 0, 10, 5, 15, 5), (1, 10, 0, 20, 20, 20), (2, 10, 80, 40, 30, -50),
    ]  # fmt: skip


def test_the_bound_on_q_blocks_is_enough() -> None:
    """total_q // block_q + batch is at least the blocks of any split of the rows into sequences."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        starts = np.sort(rng.integers(0, 101, 2))
        lengths = np.diff([0, *starts, 100])
        assert sum(-(-int(length) // 16) for length in lengths) <= PACKED.q_blocks(16)
