"""Candidates as machine code: planned, ordered by the IO model, compiled in processes, judged by what ptxas says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..diagnostics import AttnccError
from ..runtime.call.persistent import own_backward_kernels
from ..runtime.cuda.nvrtc_pool import jobs
from ..schedule.plan import KernelPlan
from ..schedule.schedule import Schedule
from ..settle import Settled, settle
from ..threads import DaemonThreads
from .candidates import TunedKernel, first_plan, settings_of
from .model import Model
from .trial import Trial

LATE = "not compiled in time"

Make = Callable[[TunedKernel, Schedule | None], Settled]


def settled(kernel: TunedKernel, schedule: Schedule | None) -> Settled:
    """The kernel that a schedule gives, compiled. AttnccError as `settle`."""
    return settle(kernel.running(schedule))


class _Made(NamedTuple):
    """What was compiled for a trial: `runs` is the kernel of the timed call. Of the others see `Trial`."""

    usual: KernelPlan
    resident: int
    runs: Settled


@dataclass(frozen=True)
class Compiler:
    """Of one kernel. `clock`: seconds."""

    kernel: TunedKernel
    model: Model
    clock: Callable[[], float]
    make: Make = settled

    def planned(self, schedules: Iterable[Schedule]) -> list[Trial]:
        """One trial each, the best by the IO model first; those that can't be come last, with the reason."""
        return sorted((self.plan(settings_of(item), item) for item in schedules), key=_order)

    def plan(self, name: str, schedule: Schedule | None) -> Trial:
        try:
            usual = first_plan(self.kernel, schedule)
            resident = self.model.resident(usual)
            own = self._own(usual, resident)
            plan = usual if own is None else first_plan(own, schedule)
        except AttnccError as error:
            return Trial(name, schedule, trouble=error.diagnostics[0].message)
        return Trial(name, schedule, plan, self.model.predict(plan), usual=usual, resident=resident)

    def _own(self, usual: KernelPlan, resident: int) -> TunedKernel | None:
        """What runs a backward call of these sizes where the usual kernel would form no clusters, if that is another
        one. `TunedKernel` knows that of decode calls already. Deterministic calls tune `backward_dq`, which forms no
        clusters."""
        if not usual.is_backward:
            return None
        found = own_backward_kernels(usual, self.model.problem, resident, ordered=False)
        return replace(self.kernel, own=found[0]) if found else None

    def compiled(self, trials: Iterable[Trial], ends: float, least: int = 2) -> Iterator[Trial]:
        """In their order, as many at once as there are processes. When the clock is at `ends` no more begin, except for
        the first `least`. AttnccError A501 without NVRTC."""
        waiting, count = list(trials), 0
        with DaemonThreads(jobs()) as threads:
            begun: list[tuple[Trial, Future[_Made]]] = []
            while waiting or begun:
                while waiting and len(_running(begun)) < jobs() and (self.clock() < ends or count < least):
                    trial, count = waiting.pop(0), count + 1
                    begun.append((trial, threads.submit(self._made, trial.schedule)))
                if not begun:
                    yield replace(waiting.pop(0), trouble=LATE)
                wait(_running(begun), return_when=FIRST_COMPLETED)
                while begun and begun[0][1].done():
                    yield self._judged(*begun.pop(0))

    def _made(self, schedule: Schedule | None) -> _Made:
        found = self.make(self.kernel, schedule)
        resident = self.model.resident(found.plan, found.compiled.resources)
        own = self._own(found.plan, resident)
        return _Made(found.plan, resident, found if own is None else self.make(own, schedule))

    def _judged(self, trial: Trial, future: Future[_Made]) -> Trial:
        try:
            usual, resident, found = future.result()
        except AttnccError as error:
            if any(item.code == "A501" for item in error.diagnostics):  # there is no NVRTC: nothing can be compiled
                raise
            return replace(trial, trouble=error.diagnostics[0].message)
        resources, trouble = found.compiled.resources, found.troubles
        prediction = self.model.predict(found.plan, resources)
        judged = replace(trial, plan=found.plan, prediction=prediction, resources=resources)
        return replace(judged, usual=usual, resident=resident, trouble=trouble, spills=bool(trouble))


def _running(begun: Iterable[tuple[Trial, Future[_Made]]]) -> list[Future[_Made]]:
    return [future for _, future in begun if not future.done()]


def _order(trial: Trial) -> tuple[float, int]:
    if trial.prediction is None:
        return float("inf"), 0
    return trial.prediction.seconds, trial.prediction.bytes_moved
