"""The process that Nsight Compute watches: it makes each call twice, and the second is counted.

python -m attncc.measure.job FILE
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..compiler import Specification
from ..diagnostics import AttnccError
from ..runtime.cuda.driver import driver
from ..tune.candidates import TunedKernel
from ..tune.gpu import Gpu
from ..tune.work import Work


class Runs(Protocol):
    """What the process runs. It comes as a file."""

    def run(self) -> None: ...


@dataclass(frozen=True)
class Job:
    """A call, with the arrays that the user gave."""

    kernel: TunedKernel
    work: Work

    @property
    def specification(self) -> Specification:
        return self.kernel.specification

    def run(self) -> None:
        """Calls twice; a profiler that waits to be told sees the second call. AttnccError as calls have it."""
        gpu = Gpu(self.work, self.kernel)
        device, launch = gpu.device, gpu.launch(self.specification)
        launch()
        with driver().profiled(device):
            launch()


def write(job: Runs, path: Path) -> None:
    path.write_bytes(pickle.dumps(job))


def main(path: Path) -> int:
    """Of a file that this user's `explain` has just written."""
    job = pickle.loads(path.read_bytes())
    try:
        job.run()
    except AttnccError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
