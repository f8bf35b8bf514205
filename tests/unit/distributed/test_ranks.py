"""Processes of tests that never end fail the test, and say where they wait."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)

from tests import ranks  # noqa: E402  (needs torch)


def waits(rank: int, name: str) -> None:
    if rank == 1:
        time.sleep(100)


def fails(rank: int, name: str) -> None:
    raise ValueError(name)


def test_a_process_that_waits_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "SECONDS", 1)
    with pytest.raises(torch.multiprocessing.ProcessExitedException) as caught:
        ranks.run_ranks(waits, ("",), 2)
    assert any("Timeout" in note and "in waits" in note for note in caught.value.__notes__)


def test_errors_are_told_as_they_are() -> None:
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="ValueError: the reason"):
        ranks.run_ranks(fails, ("the reason",), 2)
