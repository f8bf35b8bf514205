"""How long a GPU is busy with thread blocks of known times."""

from __future__ import annotations

import pytest

from attncc.kernels.makespan import makespan


@pytest.mark.parametrize(
    ("times", "copies", "workers", "wanted"),
    [
        ([5], 1, 4, 5),
        ([5], 4, 4, 5),
        ([5], 5, 4, 10),  # a wave more
        ([3, 1, 2], 1, 2, 3),  # the longest first: 3 beside 2 and 1
        ([4, 3, 3, 2, 2], 1, 2, 8),  # and not the least that there could be, 7
        ([1, 3], 1000, 10, 400),  # of many only the sum counts
    ],
)
def test_makespan(times: list[float], copies: int, workers: int, wanted: float) -> None:
    assert makespan(times, copies, workers) == wanted
