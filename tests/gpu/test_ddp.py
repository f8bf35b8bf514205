"""DistributedDataParallel over NCCL: two processes, each with a GPU, train as one does with all of the batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import attncc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SECONDS = 100  # of which most go to imports, and to begin with NCCL


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    if not torch.distributed.is_nccl_available():
        pytest.skip("needs a torch with NCCL")
    from tests.gpu import training

    model = training.Layer().cuda()
    training.trained(model, training.batch().cuda())
    alone = training.state(model)
    command = [sys.executable, "-m", "tests.gpu.training"]
    place = {"cwd": Path(attncc.__file__).parent.parent, "env": {**os.environ, "NCCL_NVLS_ENABLE": "0"}}
    running = [subprocess.Popen([*command, str(rank), str(tmp_path)], **place) for rank in range(training.WORLD)]
    try:
        assert [process.wait(SECONDS) for process in running] == [0] * training.WORLD
    finally:
        for process in running:
            process.kill()
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(training.WORLD)]
    for name, expected in alone.items():
        one, other = (each[name] for each in found)
        assert torch.equal(one, other), name
        assert expected.any(), name
        torch.testing.assert_close(one, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
