"""Which target runs on which GPU."""

from __future__ import annotations

import pytest

from attncc.runtime.cuda.device import best_target
from attncc.schedule.target import TARGETS


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        (75, None),
        (80, "sm_80"),
        (86, "sm_80"),
        (90, "sm_90a"),
        (100, "sm_100"),
        (103, "sm_100"),
        (110, None),
        (121, "sm_120"),
    ],
)
def test_best_of_all_targets(capability: int, expected: str | None) -> None:
    assert best_target(TARGETS, capability) == expected


def test_only_what_was_built_counts() -> None:
    assert best_target(["sm_80"], 90) is None
    assert best_target(["sm_80", "sm_90"], 90) == "sm_90"
    assert best_target(["sm_90a"], 90) == "sm_90a"
    assert best_target([], 80) is None
