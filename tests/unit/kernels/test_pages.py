"""How kernels find the page of a key."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.ir import MAX_LENGTH
from attncc.kernels.pages import Division, box_rows, page_fields
from attncc.problem import Problem


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 10, 16, 48, 64, 100, 127, 128, 255, 256, 641, 4096, 65_535, 2**29 + 1])
def test_division_by_multiplication_is_exact(divisor: int) -> None:
    division = Division.by(divisor)
    assert division.magic <= 2**32 and division.shift < 64
    rng = np.random.default_rng(0)
    around = rng.integers(0, MAX_LENGTH // divisor + 1, 10_000) * divisor
    numbers = np.concatenate([around, around - 1, around + 1, rng.integers(0, MAX_LENGTH, 10_000)])
    numbers = np.unique(np.clip(np.append(numbers, [0, MAX_LENGTH]), 0, MAX_LENGTH)).astype(np.uint64)
    found = numbers * np.uint64(division.magic) >> np.uint64(division.shift)
    assert np.array_equal(found, numbers // np.uint64(divisor))


def paged(page: int | None) -> Problem:
    return Problem(2, 4, 2, 10, 512, 64, 64, cached=True, page=page)


def test_boxes_lie_in_one_page_each() -> None:
    assert [box_rows(96, paged(page)) for page in (None, 1, 16, 24, 32, 64, 96, 256)] == [96, 1, 16, 24, 32, 32, 96, 32]


def test_fields_of_a_pool() -> None:
    fields = page_fields(64, paged(16), 100)
    assert {name: fields[name] for name in ("page_rows", "pages", "max_blocks", "box_rows")} == {
        "page_rows": 16, "pages": 100, "max_blocks": 32, "box_rows": 16,
    }  # fmt: skip
