"""Bytes that the IO model predicts, beside those that the counters of this GPU tell.

    python -m benchmarks.io_model [--sweeps specs,block_q,length,head_dim,first_stores] [--ncu PATH] [--out FOLDER]
    python -m benchmarks.io_model --predict [--device h200]

The first needs a GPU, torch, and Nsight Compute with permission for the counters. It compiles all kernels beside each
other, and runs all calls of `specs`, and then those of the other sweeps, in one process each: a call once to warm up
and once to be counted. It writes `io_model_<device>_<day>.json` after each of the two, and prints measured over
predicted bytes. The second needs no GPU and prints the predictions. `python -m docs.io_plots` draws both.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attncc import AttnccError
from attncc.analysis.cost.roofline import DEVICES
from attncc.compiler import CompiledStore
from attncc.explain import capacity
from attncc.kernels.crossings import Chip
from attncc.kernels.registry import facts_of
from attncc.kernels.serving import backward_plan_for, plan_for
from attncc.measure import ncu
from attncc.measure.compare import CLOSE
from attncc.measure.job import Job, Runs
from attncc.measure.ncu import Launch
from attncc.runtime.call.persistent import own_backward_kernels
from attncc.runtime.cuda.driver import driver
from attncc.runtime.cuda.nvrtc_pool import jobs
from attncc.runtime.store.store import first_own
from attncc.schedule.plan import KernelPlan
from attncc.threads import DaemonThreads
from attncc.tune.model import device_like

from .io_jobs import MARK, Jobs, StandardJob
from .io_points import STANDARD, Call, Point, points, total

SWEEPS = ("specs", "block_q", "length", "head_dim", "first_stores")
Row = dict[str, Any]


# -------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Compiled:
    """A call whose kernels are in the cache: it runs in another process."""

    call: Call
    plan: KernelPlan | None  # None: torch's own kernels

    @classmethod
    def of(cls, call: Call) -> Compiled:
        """AttnccError A4xx where there is no such kernel."""
        if call.point.order == STANDARD:
            return cls(call, None)
        configuration, target, problem = call.configuration, call.kernel.build.target, call.point.problem
        store = CompiledStore(call.kernel.specification, configuration, (target,))
        store.compile_now()  # of a backward call too, whose out and lse a forward kernel gives
        if call.point.pass_name == "backward":
            plan = backward_plan_for(store.backward_plans(configuration, target), problem)
            own = own_backward_kernels(plan, problem, capacity(plan, call.device), ordered=False)
            configuration = first_own(store, configuration, target, own) or configuration
            plans = store.backward_plans(configuration, target)
            store.machine_codes(plans)
            return cls(call, backward_plan_for(plans, problem))
        plan = plan_for(store.plans(configuration, target), problem, Chip(call.device.multiprocessors))
        kernels = facts_of(plan).own_kernels(problem, Chip(call.device.multiprocessors))
        found = first_own(store, configuration, target, kernels)
        return cls(call, plan if found is None else store.plans(found, target)[0])

    @property
    def job(self) -> Runs:
        return StandardJob(self.call.point) if self.plan is None else Job(self.call.kernel, self.call.work)

    def row(self, launches: Sequence[Launch]) -> Row:
        """`measured` is of kernels that are predicted; `kernels` has all."""
        point = self.call.point.row()
        if not launches:
            return {**point, "trouble": "nothing was counted: the call failed"}
        if self.plan is None:
            found = {"measured": total([launch.bytes for launch in launches]), "kernels": _kernels(launches, {})}
            return {**point, "predicted": self.call.predicted(), **found}
        predicted = self.call.launches(self.plan)
        known = [launch.bytes for launch in launches if launch.kernel in predicted]
        return {
            **point,
            "tiles": self.plan.tiles,
            "predicted": total(list(predicted.values())),
            "measured": total(known) if known else {},
            "kernels": _kernels(launches, predicted),
        }


def _kernels(launches: Sequence[Launch], predicted: Mapping[str, Mapping[str, int]]) -> list[Row]:
    return [
        {"kernel": launch.kernel, "predicted": predicted.get(launch.kernel), "measured": launch.bytes}
        for launch in launches
    ]


def by_call(launches: Sequence[Launch], count: int) -> list[list[Launch]]:
    """Launches of so many calls, by call. SystemExit, with all that was seen, where there are other marks."""
    found: list[list[Launch]] = [[]]
    for launch in launches:
        if MARK in launch.kernel:
            found.append([])
        else:
            found[-1].append(launch)
    if len(found) != count + 1 or found.pop():
        seen = json.dumps([{"kernel": launch.kernel, **launch.bytes} for launch in launches])
        raise SystemExit(f"these aren't the launches of {count} calls: {seen}")
    return found


class Measurer:
    """On this machine's GPU. AttnccError A503, A540 to A542."""

    def __init__(self, executable: Path | None) -> None:
        gpu = driver().device(0)
        self._ncu, self._capability = ncu.find(executable), gpu.capability
        self.device, _ = device_like(gpu.name, gpu.capability, gpu.multiprocessors)

    def compiled(self, point: Point) -> Compiled | Row:
        """Or the row of one that can't be."""
        try:
            return Compiled.of(Call(point, self.device))
        except AttnccError as error:
            return {**point.row(), "trouble": error.diagnostics[0].message}

    def rows(self, made: Sequence[Compiled | Row]) -> list[Row]:
        compiled = [item for item in made if isinstance(item, Compiled)]
        found = [item for item in made if not isinstance(item, Compiled)]
        if compiled:
            calls = Jobs(tuple(item.job for item in compiled))
            launches = by_call(ncu.count(self._ncu, calls, self._capability), len(compiled))
            found += [item.row(seen) for item, seen in zip(compiled, launches, strict=True)]
        return found


def predictions(device: str, chosen: Sequence[Point]) -> list[Row]:
    """Rows as `Measurer` has them, without `measured`: of the tiles that each kernel gets first, nothing compiled."""
    found = []
    for point in chosen:
        call = Call(point, DEVICES[device])
        try:
            found.append({**point.row(), "tiles": call.plan.tiles, "predicted": call.predicted()})
        except AttnccError as error:
            found.append({**point.row(), "trouble": error.diagnostics[0].message})
    return found


# -------------------------------------------------------------------- what is printed


LIMITS = {"l2_reads": CLOSE, "sm_reads": CLOSE, "sm_writes": CLOSE, "reductions": CLOSE, "hbm_reads": 0.05}


def ratios(row: Mapping[str, Any]) -> dict[str, float]:
    """Measured over predicted, of each quantity that is predicted."""
    predicted, measured = row.get("predicted", {}), row.get("measured", {})
    return {name: measured[name] / size for name, size in predicted.items() if size and name in measured}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    from .measure import table

    names = "sweep", "variant", "pass_name", "order", "length", "head_dim"
    shown = [(*(row[name] for name in names), *(_shown(row, name) for name in LIMITS)) for row in rows]
    counts = []
    for name, limit in LIMITS.items():
        found = [ratio for row in rows if (ratio := ratios(row).get(name)) is not None]
        close = sum(abs(ratio - 1) <= limit for ratio in found)
        counts.append(f"{name}: {close} of {len(found)} within {limit:.0%}")
    return "\n".join([table((*names, *LIMITS), shown), *counts])


def _shown(row: Mapping[str, Any], name: str) -> str:
    found = ratios(row).get(name)
    return row.get("trouble", "-")[:30] if found is None else f"{found:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", default=",".join(SWEEPS), help="which, with commas between them")
    parser.add_argument("--predict", action="store_true", help="print predictions; measure nothing")
    parser.add_argument("--device", default="h200", choices=DEVICES, help="of predictions")
    parser.add_argument("--ncu", type=Path, help="Nsight Compute, if not in PATH")
    parser.add_argument("--out", type=Path, help="where results go, if not to benchmarks/results")
    given = parser.parse_args()
    wanted = given.sweeps.split(",")
    chosen = [point for point in points() if point.sweep in wanted]
    if given.predict:
        print(json.dumps(predictions(given.device, chosen), indent=1))
        return
    from .measure import RESULTS, write

    parts = [[point for point in chosen if (point.sweep == "specs") is first] for first in (True, False)]
    rows: list[Row] = []
    try:
        measurer = Measurer(given.ncu)
        with DaemonThreads(jobs()) as pool:
            begun: list[list[Future[Compiled | Row]]] = [
                [pool.submit(measurer.compiled, point) for point in part] for part in parts if part
            ]
            for part in begun:
                rows += measurer.rows([future.result() for future in part])
                path = write("io_model", rows, given.out or RESULTS)
    except AttnccError as error:
        raise SystemExit(str(error)) from None
    print(f"{summary(rows)}\n{path}")


if __name__ == "__main__":
    main()
