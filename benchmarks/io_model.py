"""Bytes that the IO model predicts, beside those that the counters of this GPU tell.

    python -m benchmarks.io_model [--sweeps block_q,length,head_dim,specs] [--ncu PATH] [--out FOLDER]
    python -m benchmarks.io_model --predict [--device h200]

The first needs a GPU, torch, and Nsight Compute with permission for the counters. It runs all calls of a sweep in one
process, each once to warm up and once to be counted, and writes `io_model_<device>_<day>.json`. The second needs no GPU
and prints the predictions. `python -m docs.io_plots` draws both.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attncc import AttnccError
from attncc.analysis.cost.roofline import DEVICES
from attncc.compiler import CompiledStore
from attncc.kernels.serving import backward_plan_for, plan_for
from attncc.measure import ncu
from attncc.measure.job import Job, Runs
from attncc.measure.ncu import Launch
from attncc.runtime.cuda.driver import driver
from attncc.runtime.cuda.nvrtc_pool import jobs
from attncc.schedule.plan import KernelPlan
from attncc.threads import DaemonThreads
from attncc.tune.model import device_like

from .io_points import BATCH, HEADS, STANDARD, Call, Point, points

SWEEPS = ("block_q", "length", "head_dim", "specs")
AFTER = ("combine", "dq_sum", "sink_gradient", "exact_sum")  # kernels that run after a call's own


# -------------------------------------------------------------------- what is watched


@dataclass(frozen=True)
class Jobs:
    """Calls, one after the other, in one process."""

    jobs: tuple[Job, ...]

    def run(self) -> None:
        for job in self.jobs:
            job.run()


@dataclass(frozen=True)
class StandardJob:
    """Algorithm 0 in torch: S, P and O are three kernels or more, and S and P lie in memory."""

    length: int
    head_dim: int

    def run(self) -> None:
        import torch

        shape = BATCH, HEADS, self.length, self.head_dim
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        q *= self.head_dim**-0.5

        def attention() -> torch.Tensor:
            return torch.softmax(q @ k.transpose(2, 3), dim=-1) @ v

        attention()
        with driver().profiled(driver().device(0)):
            attention()


# -------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Compiled:
    """A call whose kernels are in the cache."""

    call: Call
    plan: KernelPlan

    @classmethod
    def of(cls, call: Call) -> Compiled:
        configuration, target, problem = call.configuration, call.kernel.build.target, call.point.problem
        store = CompiledStore(call.kernel.specification, configuration, (target,))
        backward = call.point.pass_name == "backward"
        plans = store.backward_plans(configuration, target) if backward else store.plans(configuration, target)
        store.machine_codes(plans)
        if backward:
            return cls(call, backward_plan_for(plans, problem))
        return cls(call, plan_for(plans, problem, call.device.multiprocessors))

    @property
    def own(self) -> str:
        """The name of its kernel in CUDA."""
        return f"{self.plan.variant.name}_{self.plan.pass_name}"


def by_call(launches: Sequence[Launch], own: Sequence[str]) -> list[list[Launch]]:
    """Launches of calls one after the other, by call: one ends with its own kernel, of the name given, and what may
    follow that. ValueError where the kernels aren't those."""
    found: list[list[Launch]] = []
    names, ended = list(own), True
    for launch in launches:
        if ended and launch.kernel not in AFTER:
            found.append([])
            ended = False
        found[-1].append(launch)
        if not ended and names and launch.kernel == names[0]:
            names.pop(0)
            ended = True
    if names or not ended:
        seen = ", ".join(launch.kernel for launch in launches)
        raise ValueError(f"the kernels of the calls weren't seen: {names} among {seen}")
    return found


def total(launches: Sequence[Launch]) -> dict[str, int]:
    return {name: sum(launch.bytes[name] for launch in launches) for name in launches[0].bytes}


class Measurer:
    """On this machine's GPU. AttnccError A503, A540 to A542."""

    def __init__(self, executable: Path | None) -> None:
        gpu = driver().device(0)
        self._ncu, self._capability = ncu.find(executable), gpu.capability
        self.device, _ = device_like(gpu.name, gpu.capability, gpu.multiprocessors)

    def rows(self, chosen: Sequence[Point]) -> list[dict[str, Any]]:
        found = [self._standard(point) for point in chosen if point.order == STANDARD]
        own = [point for point in chosen if point.order != STANDARD]
        with DaemonThreads(jobs()) as pool:
            made = list(pool.map(self._compiled, own))
        compiled = [item for item in made if isinstance(item, Compiled)]
        found += [item for item in made if not isinstance(item, Compiled)]
        if compiled:
            calls = Jobs(tuple(Job(item.call.kernel, item.call.work) for item in compiled))
            launches = by_call(self._count(calls), [item.own for item in compiled])
            for item, seen in zip(compiled, launches, strict=True):
                kernels = [{"kernel": launch.kernel, **launch.bytes} for launch in seen]
                predicted, tiles = item.call.predicted(item.plan), item.plan.tiles
                measured = {"tiles": tiles, "predicted": predicted, "measured": total(seen), "kernels": kernels}
                found.append({**item.call.point.row(), **measured})
        return found

    def _compiled(self, point: Point) -> Compiled | dict[str, Any]:
        """Or the row of one that can't be."""
        try:
            return Compiled.of(Call(point, self.device))
        except AttnccError as error:
            return {**point.row(), "trouble": error.diagnostics[0].message}

    def _standard(self, point: Point) -> dict[str, Any]:
        measured = total(self._count(StandardJob(point.length, point.head_dim)))
        return {**point.row(), "predicted": Call(point, self.device).predicted(), "measured": measured}

    def _count(self, job: Runs) -> list[Launch]:
        return ncu.count(self._ncu, job, self._capability)


def predictions(device: str, chosen: Sequence[Point]) -> list[dict[str, Any]]:
    """Rows as `Measurer` has them, without `measured`: of the tiles that each kernel gets first, nothing compiled."""
    found = []
    for point in chosen:
        call = Call(point, DEVICES[device])
        try:
            found.append({**point.row(), "tiles": call.plan.tiles, "predicted": call.predicted()})
        except AttnccError as error:
            found.append({**point.row(), "trouble": error.diagnostics[0].message})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", default=",".join(SWEEPS), help="which, with commas between them")
    parser.add_argument("--predict", action="store_true", help="print predictions; measure nothing")
    parser.add_argument("--device", default="h200", choices=DEVICES, help="of predictions")
    parser.add_argument("--ncu", type=Path, help="Nsight Compute, if not in PATH")
    parser.add_argument("--out", type=Path, help="where results go, if not to benchmarks/results")
    given = parser.parse_args()
    chosen = [point for point in points() if point.sweep in given.sweeps.split(",")]
    if given.predict:
        print(json.dumps(predictions(given.device, chosen), indent=1))
        return
    try:
        measurer = Measurer(given.ncu)
        rows = [row for sweep in SWEEPS for row in measurer.rows([point for point in chosen if point.sweep == sweep])]
    except AttnccError as error:
        raise SystemExit(str(error)) from None
    from .measure import RESULTS, write

    print(write("io_model", rows, given.out or RESULTS))


if __name__ == "__main__":
    main()
