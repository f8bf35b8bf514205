"""Random calls on the CPU executor beside the dense reference; `python -m tests.random_calls` checks more of them."""

from __future__ import annotations

import pytest

from tests.examples import examples
from tests.random_calls.check import check


@pytest.mark.parametrize("numbers", examples(60, every_day=16))
def test_calls_in_all_forms_are_right(numbers: range) -> None:
    found = [check(seed) for seed in numbers]
    assert not [item for item in found if item.faults]
    features = {name for item in found for name in item.features}
    assert {"bshd", "gaps", "int64", "axes swapped in memory"} <= features


@pytest.mark.parametrize("seed", [16, 49])
def test_packages_are_right(seed: int) -> None:
    """Of the second the batch is packed, and its starts are int64."""
    assert not check(seed, packages=True).faults
