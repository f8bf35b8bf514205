"""Every spec keeps exactly the pairs that its independent definition does, element by element."""

from __future__ import annotations

import numpy as np
import pytest

from tests.library.cases import SPECS, Case
from tests.library.library import CASES

LENGTHS = [
    (1, 1), (1, 9), (9, 1), (2, 3), (12, 12), (7, 23), (23, 7), (20, 36), (50, 50), (64, 200), (200, 64), (97, 97),
    (113, 203),
]  # fmt: skip


def test_every_spec_has_a_case() -> None:
    assert {item.spec for item in CASES} == set(SPECS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_mask(case: Case) -> None:
    for seed, consts in enumerate(case.consts):
        variant = case.variant(consts)
        for q_len, kv_len in LENGTHS:
            random = np.random.default_rng([seed, q_len, kv_len])
            inputs, expected = case.draw(random, q_len, kv_len, **consts)
            found = variant.mask(q_len, kv_len, **inputs)
            np.testing.assert_array_equal(
                found, np.broadcast_to(expected, found.shape), f"{consts} {q_len}x{kv_len}", strict=True
            )
