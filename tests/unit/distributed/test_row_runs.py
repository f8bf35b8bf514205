"""Copies and sums of rows against torch's indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from attncc.distributed import row_runs  # noqa: E402  (needs torch)
from attncc.distributed.own_gradients import OwnGradients, Sums  # noqa: E402
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


@pytest.mark.parametrize(
    "keys", [[], [(0, 64)], [(10, 50)], [(30, 64), (0, 35)], [(0, 30), (41, 64), (8, 50)]], ids=len
)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0, None])
def test_gradients_of_own_rows_are_sums(keys: list[tuple[int, int]], share: float | None) -> None:
    """Of what launches found of their keys and, in the order of ranks, what others did; rounded once. Without a share:
    few runs."""
    rng, generator = np.random.default_rng(len(keys)), torch.Generator().manual_seed(len(keys))
    own = drawn(rng, ROWS, 0.5) if share is not None else [(3, 20), (40, 61)]
    numbers = rows_of(own)
    few = [[(3, 8), (53, 61)], [], [(7, 20), (40, 42)]]
    some = [runs_of(numbers[rng.random(len(numbers)) < share]) if share is not None else runs for runs in few]
    going = [RowRuns(runs, "cpu") for runs in some]

    def random(rows: int, dtype: Any) -> Any:
        return torch.randn(2, rows, 8, generator=generator).to(dtype)

    found = [random(end - begin, torch.bfloat16) for begin, end in keys]
    parts = [random(rows.count, torch.float32) for rows in going]
    wanted = torch.zeros(2, ROWS, 8)
    for x, (begin, end) in zip(found, keys, strict=True):
        wanted[:, begin:end] += x.float()
    for rows, part in zip(going, parts, strict=True):
        wanted[:, rows_of(rows.runs)] += part
    result = torch.full((2, len(numbers), 8), torch.nan, dtype=torch.bfloat16)
    OwnGradients(RowRuns(own, "cpu"), going, ROWS, keys, "cpu").write(result, 1, found, parts)
    assert torch.equal(result, wanted[:, numbers].bfloat16())


def test_sums_of_16_bit_tensors_are_rounded_once() -> None:
    """Also where they go to a wider tensor, as gradients on their way to their owners do."""
    terms = [torch.full((1, 4, 8), value, dtype=torch.bfloat16) for value in (1.0, 2.0**-9)]
    for dtype in (torch.float32, torch.bfloat16):
        result = torch.full((1, 6, 8), torch.nan, dtype=dtype)
        Sums([(10, 16, 0)], [[(10, 14, 0)], [(12, 16, 0)]]).write(result, 1, terms)
        assert torch.equal(result[0, :, 0], torch.tensor([1, 1, 1 + 2.0**-9, 1 + 2.0**-9, 2.0**-9, 2.0**-9]).to(dtype))


def test_joined_runs_have_each_row_once() -> None:
    assert joined([(4, 6), (0, 2), (5, 9), (2, 3), (7, 8), (11, 11)]) == [(0, 3), (4, 9)]
