"""DistributedDataParallel averages the gradients of learnable inputs, as those of any parameter."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)

from tests.ranks import run_ranks  # noqa: E402  (needs torch)
from tests.unit.distributed import averaging  # noqa: E402


def test_ddp_averages_the_gradients_of_learnable_inputs(tmp_path: Path) -> None:
    run_ranks(averaging.process, (str(tmp_path),), averaging.WORLD)
    both = [torch.load(tmp_path / f"{rank}.pt") for rank in range(averaging.WORLD)]
    assert torch.equal(*both)
    assert both[0].any()
