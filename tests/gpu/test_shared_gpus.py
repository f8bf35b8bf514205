"""One attention shared by two GPUs, and caches that two GPUs share, with NCCL: as on one GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def test_two_gpus_find_what_one_does(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    from tests.gpu import shared_gpus

    found = shared_gpus.results(str(tmp_path), "cuda")
    assert all(len(each) == 10 for each in found)
    assert [item for each in found for item in each.items() if item[1]] == []
