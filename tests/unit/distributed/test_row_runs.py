"""Copies and sums of rows against torch's indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from attncc.distributed import row_runs  # noqa: E402  (needs torch)
from attncc.distributed.own_gradients import OwnGradients  # noqa: E402
from attncc.distributed.row_runs import RowRuns, copy, joined, rows_of, runs_of  # noqa: E402

ROWS = 64


def drawn(rng: np.random.Generator, rows: int, share: float) -> list[tuple[int, int]]:
    """Runs of about this share of so many rows."""
    return runs_of(np.flatnonzero(rng.random(rows) < share))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("rows", [slice(0, None), slice(1, None, 2)])
@pytest.mark.parametrize("columns", [16, 20, 3])
def test_copies_by_words_copy_all(monkeypatch: pytest.MonkeyPatch, dtype: str, rows: slice, columns: int) -> None:
    monkeypatch.setattr(row_runs, "LARGE", 0)
    whole = torch.randn(2, 4, 10, columns, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    into, x = torch.zeros_like(whole), whole[:, 1:, rows]
    for target in (into[:, 1:, rows], into[:, 1:, rows].mT.contiguous().mT):
        copy(target, x)
        assert torch.equal(target, x)


@pytest.mark.parametrize("launches", [1, 2, 3])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0, None])
def test_gradients_of_own_rows_are_sums(launches: int, share: float | None) -> None:
    """Of what was found here and, in the order of ranks, elsewhere; rounded once. Without a share: few runs."""
    rng, generator = np.random.default_rng(launches), torch.Generator().manual_seed(launches)
    own = drawn(rng, ROWS, 0.5) if share is not None else [(3, 20), (40, 61)]
    numbers = rows_of(own)
    few = [[(0, 5), (30, 38)], [], [(4, 19)]]
    going = [RowRuns(runs if share is None else drawn(rng, len(numbers), share), "cpu") for runs in few]

    def random(rows: int, dtype: Any) -> Any:
        return torch.randn(2, rows, 8, generator=generator).to(dtype)

    found = [random(ROWS, torch.bfloat16) for _ in range(launches)]
    parts = [random(rows.count, torch.float32) for rows in going]
    wanted = torch.zeros(2, len(numbers), 8)
    for x in found:
        wanted += x[:, numbers].float()
    for rows, part in zip(going, parts, strict=True):
        wanted[:, rows_of(rows.runs)] += part
    result = torch.full((2, len(numbers), 8), torch.nan, dtype=torch.bfloat16)
    OwnGradients(RowRuns(own, "cpu"), going, "cpu").write(result, 1, found, parts)
    assert torch.equal(result, wanted.bfloat16())


def test_joined_runs_have_each_row_once() -> None:
    assert joined([(4, 6), (0, 2), (5, 9), (2, 3), (7, 8), (11, 11)]) == [(0, 3), (4, 9)]
