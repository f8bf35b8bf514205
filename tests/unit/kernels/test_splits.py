"""The split heuristic, on an H200's 132 multiprocessors with two blocks each."""

from __future__ import annotations

import pytest

from attncc.kernels.splits import MAX_SPLITS, choose_splits

CAPACITY = 264


@pytest.mark.parametrize(
    ("blocks", "tiles", "expected"),
    [
        (264, 1000, 1),  # the GPU is full
        (5000, 64, 1),
        (8, 1, 1),  # one tile can't be split
        (8, 6, 1),  # 6 tiles: cheaper than a combine
        (8, 1024, 32),  # batch 1, 8 key heads, 131072 keys: one wave; 33 would leave one without tiles
        (1, 4096, 256),  # no more than the combine takes
        (132, 512, 2),
        (512, 256, 1),  # 1.94 waves: nearly full
        (300, 256, 3),  # 1.14 waves would leave most of the second empty
        (0, 100, 1),  # nothing to do
        (8, 0, 1),
    ],
)
def test_known_cases(blocks: int, tiles: int, expected: int) -> None:
    assert choose_splits(blocks, tiles, CAPACITY) == expected


@pytest.mark.parametrize("blocks", [1, 3, 8, 17, 64, 100, 131, 200, 263])
@pytest.mark.parametrize("tiles", [1, 2, 5, 16, 33, 100, 500, 4096])
def test_splits_are_legal_and_never_model_slower_than_none(blocks: int, tiles: int) -> None:
    splits = choose_splits(blocks, tiles, CAPACITY)
    assert 1 <= splits <= min(tiles, MAX_SPLITS)
    waves = -(-blocks * splits // CAPACITY)
    assert waves * -(-tiles // splits) <= tiles
