"""A simulated GPU that runs specifications, and sessions on it. Nothing is compiled: `made` stands for ptxas."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from attncc.analysis.cost.roofline import DEVICES
from attncc.compiler import Specification
from attncc.problem import Problem
from attncc.runtime.cuda.nvrtc import Resources
from attncc.schedule.plan import Build, KernelPlan
from attncc.schedule.schedule import Schedule
from attncc.settle import Settled
from attncc.tune.candidates import TunedKernel, first_plan
from attncc.tune.log import Log
from attncc.tune.model import Model
from attncc.tune.race import HELD
from attncc.tune.session import Session
from attncc.tune.work import Oracle, Work
from tests.unit.tune.simulated import Simulated, SimulatedGpu

Times = Callable[[KernelPlan], float]  # milliseconds of a call
PROBLEM = Problem(1, 2, 2, 300, 300, 16, 16)


def by_tiles(plan: KernelPlan) -> float:
    """Fastest at 64 x 48: no tile that the families name for sm_80 and head dim 16, but a neighbour of one."""
    return 0.2 * (1 + abs(plan.block_q - 64) / 200 + abs(plan.block_kv - 48) / 300 + abs(plan.stages - 2) / 50)


class SimulatedMachine(SimulatedGpu):
    """Calls take `times` of the plan that runs. Results are right, but for those of plans in `wrong`; results of plans
    with different keys differ in bits. `after`: a number of windows, after which Ctrl-C is pressed."""

    name = "NVIDIA H200"

    def __init__(
        self, kernel: TunedKernel, work: Work, times: Times = by_tiles, *, wrong: Callable[[KernelPlan], bool] = bool,
        after: int | None = None, **noise: Any,
    ) -> None:  # fmt: skip
        super().__init__(**noise)
        self._kernel, self._work, self._times, self._wrong = kernel, work, times, wrong
        self.windows, self._after = 0, after
        self.checked: list[str] = []

    def environment(self) -> Mapping[str, Any]:
        return {"device": self.name, "nvrtc": "13.0", "attncc": "0"}

    def window(self, launch: Callable[[], object], repeats: int, before: int = 0) -> float:
        self.windows += 1
        if self._after is not None and self.windows > self._after:
            raise KeyboardInterrupt
        return super().window(launch, repeats, before)

    def launch(self, specification: Specification) -> Simulated:
        return Simulated(self._times(self._plan(specification)))

    def results(self, specification: Specification, small: Work) -> Sequence[np.ndarray]:
        plan = self._plan(specification)
        self.checked.append(plan.tiles)
        (out, *more), _ = Oracle(small).wanted
        changed = out.copy()
        if self._wrong(plan):
            changed[..., 0] += 1
        elif plan.block_kv % 32:
            changed[0, 0, 0, 0] = np.nextafter(changed[0, 0, 0, 0], changed.dtype.type(np.inf))
        return changed, *more

    def _plan(self, specification: Specification) -> KernelPlan:
        build = self._kernel.build
        return _first_plan(specification, build, specification.schedule(build.pass_name, build.target))


def made(
    spills: Callable[[KernelPlan], bool] = bool, calls: list[str] | None = None
) -> Callable[[TunedKernel, Schedule | None], Settled]:
    """Compiles nothing: says which plans spill. `calls` gets the tiles of each."""

    def make(kernel: TunedKernel, schedule: Schedule | None) -> Any:
        plan = first_plan(kernel, schedule)
        if calls is not None:
            calls.append(plan.tiles)
        resources = Resources(128, 0, 0, 0, 1.0)
        trouble = "8 bytes of spills" if spills(plan) else ""
        return SimpleNamespace(plan=plan, compiled=SimpleNamespace(resources=resources), troubles=trouble)

    return make


@cache
def _model(problem: Problem) -> Model:
    """One for all sessions: most candidates of one are those of the next."""
    return Model(problem, {}, DEVICES["h200"])


@cache
def _first_plan(specification: Specification, build: Build, schedule: Schedule | None) -> KernelPlan:
    return TunedKernel(specification, build).candidates(schedule).first


def never(_: KernelPlan) -> bool:
    return False


class Rig:
    """A kernel, its work, and what has been logged: sessions on simulated machines."""

    def __init__(self, kernel: TunedKernel, problem: Problem = PROBLEM, path: Path | None = None) -> None:
        build = kernel.build
        self.kernel = kernel
        self.work = Work(kernel.variant, problem, build.dtype, build.pass_name, {})
        self.path = path or Path(tempfile.mkdtemp()) / "log.jsonl"
        self.compiled: list[str] = []
        self.machine = SimulatedMachine(kernel, self.work, wrong=never)

    def session(
        self,
        times: Times = by_tiles,
        *,
        budget: float = 60,
        resume: bool = False,
        spills: Callable[[KernelPlan], bool] = never,
        wrong: Callable[[KernelPlan], bool] = never,
        after: int | None = None,
        **noise: Any,
    ) -> Session:
        identity = {"problem": str(self.work.problem)}
        log = Log.resume(self.path, identity) if resume else Log.begin(self.path, identity, {})
        self.machine = SimulatedMachine(self.kernel, self.work, times, wrong=wrong, after=after, **noise)
        model = _model(self.work.problem)
        self.compiled.clear()
        return Session(self.kernel, self.work, model, self.machine, log, budget, make=made(spills, self.compiled))


def best_milliseconds(session: Session, times: Times) -> float:
    """Of all candidates that there are, and what is held."""
    return min(times(trial.plan) for trial in session.trials.values() if trial.plan is not None)


def chosen_milliseconds(session: Session, times: Times) -> float:
    """Of what stands in the file afterwards."""
    plan = (session.winner or session.trials[HELD]).plan
    assert plan is not None
    return times(plan)
