"""What the process runs that Nsight Compute watches for `benchmarks.io_model`. It comes there as a file, which names
these classes by this module.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from attncc import AttnccError
from attncc.measure.job import Runs
from attncc.runtime.cuda.driver import driver

from .io_points import BATCH, Point

MARK = "spin_kernel"  # of torch: it ends each call


@dataclass(frozen=True)
class Jobs:
    """Calls, one after the other, in one process, and a mark behind each. One that fails is left out."""

    jobs: tuple[Runs, ...]

    def run(self) -> None:
        for job in self.jobs:
            try:
                job.run()
            except (AttnccError, RuntimeError) as error:
                print(error, file=sys.stderr)
            self._mark()

    @staticmethod
    def _mark() -> None:
        import torch

        with driver().profiled(driver().device(0)):
            torch.cuda._sleep(1)


@dataclass(frozen=True)
class StandardJob:
    """Algorithm 0 in torch: S, P and O are three kernels or more, and S and P lie in memory."""

    point: Point

    def run(self) -> None:
        import torch

        point = self.point
        shape = BATCH, point.heads, point.length, point.head_dim
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        q *= point.head_dim**-0.5

        def attention() -> torch.Tensor:
            return torch.softmax(q @ k.transpose(2, 3), dim=-1) @ v

        attention()
        with driver().profiled(driver().device(0)):
            attention()
