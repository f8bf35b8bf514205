"""A run of the tuner: candidates are compiled, raced, checked, and the best is held against what the file has.

Its state stays whole at any point. So who is interrupted calls `conclude`, and has what was found until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from ..diagnostics import AttnccError, Diagnostic
from ..runtime.cuda.nvrtc_pool import jobs
from ..schedule.schedule import Schedule
from ..settle import Settled, settle
from ..threads import DaemonThreads
from .candidates import TunedKernel, first_plan, schedules, settings_of
from .log import Log
from .machine import Machine
from .model import Model
from .race import HELD, TWIN, Board, Timer, Verdict, confirm, halve, judge, ranked
from .trial import Trial
from .work import Oracle, Work

MOST = 32  # candidates, where the file names none
COMPILING, RACING = 0.5, 0.75  # shares of the budget after which compilation begins no more, and the race ends
LATE = "the budget ran out before it was compiled"
FEWER = "the IO model puts it behind those that are tried"

Say = Callable[[str], None]


def settled(kernel: TunedKernel, schedule: Schedule | None) -> Settled:
    """The kernel that a schedule gives, compiled. AttnccError as `settle`."""
    return settle(kernel.candidates(schedule))


@dataclass
class Session:
    """`say` is told what goes on, after each part of it."""

    kernel: TunedKernel
    work: Work
    model: Model
    machine: Machine
    log: Log
    budget: float  # seconds
    say: Say = lambda what: None
    make: Callable[[TunedKernel, Schedule | None], Settled] = settled
    trials: dict[str, Trial] = field(default_factory=dict)
    verdict: Verdict | None = None
    bits_differ: bool | None = None  # of the winner's result from the held one's; None: not compared

    def __post_init__(self) -> None:
        self.board: Board = self.log.board()
        self._begin = self.machine.clock()
        self._timer: Timer | None = None
        self._spilling_too = self._ran_out = False
        self._checked: dict[str, tuple[str, bool | None]] = {
            record["name"]: (record["trouble"], record["bits_differ"]) for record in self.log.of("checked")
        }

    # ------------------------------------------------------------ what goes on

    def run(self) -> None:
        """All of it. AttnccError A521 if no candidate can be."""
        self._plan()
        self._compile()
        self._race()
        self.conclude()

    def conclude(self, *, timing: bool = True) -> None:
        """The verdict on what was timed: the fastest that is right, against what is held. To be called again after an
        interruption, whenever that came; without `timing` it takes no more windows."""
        if self.verdict is None and self.trials:
            self.verdict = self._concluded(timing)
            if self.verdict is not None and timing and not self._cut_short:
                self.log.write("verdict", **vars(self.verdict), bits_differ=self.bits_differ)
        self.log.close()

    @property
    def _cut_short(self) -> bool:
        """Whether more time could change the verdict."""
        late = any(trial.trouble == LATE for trial in self.trials.values())
        return late or self._ran_out

    def _concluded(self, timing: bool) -> Verdict | None:
        """None if nothing was timed."""
        found: Verdict | None = None
        for name in ranked(self.board, [name for name in self.trials if name != HELD]):
            if self.board.interval(name)[0] >= 1:  # it lost
                found = judge(self.board, name)
                break
            if self._is_right(name):
                found = self._confirmed(name, timing)
                break
        if self.held is None and not (found is not None and found.wins) and self._timer is not None:
            found = self._instead_of_none()
        return found

    def _instead_of_none(self) -> Verdict | None:
        """What the file has can't be: what the others were timed against takes its place, if it is right."""
        return Verdict(self.anchor, True, 0.0, (0.0, 0.0), 0.0) if self._is_right(self.anchor) else None

    # ------------------------------------------------------------ results

    @property
    def held(self) -> Trial | None:
        """What the file has; None where that can't be."""
        found = self.trials.get(HELD)
        return None if found is None or (found.trouble and not found.spills) else found

    @property
    def anchor(self) -> str:
        """The trial that all others are timed against."""
        return HELD if self.held is not None else next(item.name for item in self.trials.values() if self._runs(item))

    @property
    def winner(self) -> Trial | None:
        """What is to be written into the file."""
        return self.trials[self.verdict.name] if self.verdict is not None and self.verdict.wins else None

    def _runs(self, trial: Trial) -> bool:
        """Whether it is to be timed."""
        return trial.plan is not None and (not trial.trouble or (trial.spills and self._spilling_too))

    # ------------------------------------------------------------ candidates

    def _plan(self) -> None:
        """Drops what can't be, and orders the rest."""
        self.say("analysing")
        if HELD not in self.trials:
            self.trials[HELD] = self._planned(HELD, self.kernel.held)
        found = [self._planned(settings_of(item), item) for item in schedules(self.kernel)]
        seen = {self.trials[HELD].plan} if self.trials[HELD].plan is not None else set()
        for trial in sorted(found, key=_order):
            if trial.plan is None or trial.plan not in seen:
                self.trials[trial.name] = trial
                seen |= {trial.plan} - {None}
            if trial.plan is None and not self.log.records:
                self.log.write("refused", name=trial.name, trouble=trial.trouble)
        self._drop_the_last()

    def _planned(self, name: str, schedule: Schedule | None) -> Trial:
        try:
            plan = self.kernel.candidates(None).first if schedule is None else first_plan(self.kernel, schedule)
        except AttnccError as error:
            return Trial(name, schedule, trouble=error.diagnostics[0].message)
        return Trial(name, schedule, plan, self.model.predict(plan))

    def _drop_the_last(self) -> None:
        open_ = self.kernel.held is not None and any(len(values) > 1 for _, values in self.kernel.held.settings)
        possible = [item for item in self.trials.values() if item.plan is not None and item.name != HELD]
        for trial in possible[len(possible) if open_ else MOST :]:
            self.trials[trial.name] = replace(trial, trouble=FEWER)

    # ------------------------------------------------------------ machine code

    def _compile(self) -> None:
        """The candidates that ptxas has nothing against stay; where there are none, those with least against them."""
        known = {record["name"]: record for record in self.log.of("compiled")}
        for name, record in known.items():
            if name in self.trials and record["trouble"]:
                self.trials[name] = replace(self.trials[name], trouble=record["trouble"], spills=record["spills"])
        wanted = [item for item in self.trials.values() if item.plan is not None and not item.trouble]
        for number, trial in enumerate(self._compiled(wanted)):
            self.trials[trial.name] = trial
            if trial.name not in known and trial.trouble != LATE:
                self.log.write("compiled", **_compiled_record(trial))
            self.say(f"compiling {number + 1} of {len(wanted)}")
        if not any(map(self._runs, self.trials.values())):
            self._take_spilling()

    def _compiled(self, trials: list[Trial]) -> Iterator[Trial]:
        """In their order, as many at once as there are processes. The held one and the first come in any case."""
        ends, waiting = self._begin + COMPILING * self.budget, list(trials)
        with DaemonThreads(jobs()) as threads:
            begun: list[tuple[Trial, Future[Settled]]] = []
            while waiting or begun:
                late = self.machine.clock() > ends and len(trials) - len(waiting) >= 2
                while waiting and len(begun) < jobs() and not late:
                    trial = waiting.pop(0)
                    begun.append((trial, threads.submit(self.make, self.kernel, trial.schedule)))
                if begun:
                    trial, future = begun.pop(0)
                    yield self._judged_by_ptxas(trial, future)
                else:
                    yield replace(waiting.pop(0), trouble=LATE)

    def _judged_by_ptxas(self, trial: Trial, future: Future[Settled]) -> Trial:
        try:
            found = future.result()
        except AttnccError as error:
            if any(item.code == "A501" for item in error.diagnostics):  # there is no NVRTC: nothing can be compiled
                raise
            return replace(trial, trouble=error.diagnostics[0].message)
        resources = found.compiled.resources
        prediction = self.model.predict(found.plan, resources)
        spills = bool(found.troubles)
        return replace(
            trial,
            plan=found.plan,
            prediction=prediction,
            resources=resources,
            trouble=found.troubles,
            spills=spills,
        )

    def _take_spilling(self) -> None:
        """Times those that spill: all do."""
        spilling = [item for item in self.trials.values() if item.spills]
        if not spilling:
            raise _nothing(item.trouble for item in self.trials.values())
        self._spilling_too = True

    # ------------------------------------------------------------ times

    def _race(self) -> None:
        """Times what is left; anew if an earlier run has done so, but blocks that it took count."""
        if kept := next(iter(self.log.of("verdict")), None):
            fields = {name: kept[name] for name in ("name", "wins", "gain", "floor")}
            self.verdict = Verdict(**fields, interval=tuple(kept["interval"]))
            self.bits_differ = kept["bits_differ"]
            return
        timer = self._timer = self._prepared()
        timer.warm()
        names = [name for name in timer.launches if name not in (HELD, TWIN)]
        if names:
            halve(timer, self.board, names, self.work.seed)
            self._ran_out = not timer.has_time_for(HELD)

    def _prepared(self) -> Timer:
        """With a launch of each, and a twin of the held one."""
        launches = {}
        for name, trial in list(self.trials.items()):
            if not self._runs(trial) and name != self.anchor:
                continue
            try:
                launches[name] = self.machine.launch(self.kernel.with_schedule(trial.schedule))
            except AttnccError as error:
                self.trials[name] = replace(trial, trouble=error.diagnostics[0].message, spills=False)
            self.say(f"loading {trial.tiles}")
        if not launches:
            raise _nothing(item.trouble for item in self.trials.values())
        anchor = self.anchor
        launches[HELD] = launches.pop(anchor)
        launches[TWIN] = self.machine.launch(self.kernel.with_schedule(self.trials[anchor].schedule))
        return Timer(self.machine, launches, self._begin + RACING * self.budget, self._tick)

    def _tick(self) -> None:
        timed = sum(name in self.board.raced for name in self.trials)
        self.say("confirming" if self.board.confirmed else f"timing {timed} schedules")

    # ------------------------------------------------------------ the end

    def _confirmed(self, name: str, timing: bool) -> Verdict:
        if not timing or self._timer is None or name not in self._timer.launches:
            return judge(self.board, name)
        timer = replace(self._timer, deadline=self._begin + self.budget)
        timer.warm()
        found = confirm(timer, self.board, name)
        self._ran_out |= not timer.has_time_for(name)
        return found

    def _is_right(self, name: str) -> bool:
        """Whether the result is that of fp64, but for rounding; and whether its bits are those of the held one."""
        if name not in self._checked:
            self.say("checking against fp64")
            self._checked[name] = self._check(name)
            trouble, differ = self._checked[name]
            self.log.write("checked", name=name, trouble=trouble, bits_differ=differ)
        trouble, self.bits_differ = self._checked[name]
        if trouble:
            self.trials[name] = replace(self.trials[name], trouble=trouble, spills=False)
        return not trouble

    def _check(self, name: str) -> tuple[str, bool | None]:
        found = self.machine.results(self.kernel.with_schedule(self.trials[name].schedule))
        if (trouble := self._oracle.judge(found)) or self.held is None:
            return trouble, None
        own = self.machine.results(self.kernel.with_schedule(self.held.schedule))
        return "", any(one.tobytes() != other.tobytes() for one, other in zip(own, found, strict=True))

    @property
    def _oracle(self) -> Oracle:
        plan = self.trials[self.anchor].plan
        return Oracle(self.work.smaller(None if plan is None else plan.grid_2d))


def _order(trial: Trial) -> tuple[float, int]:
    if trial.prediction is None:
        return float("inf"), 0
    return trial.prediction.seconds, trial.prediction.bytes_moved


def _compiled_record(trial: Trial) -> dict[str, object]:
    took = trial.resources
    return {
        "name": trial.name,
        "tiles": trial.tiles,
        "trouble": trial.trouble,
        "spills": trial.spills,
        "registers": None if took is None else took.registers,
        "spill_bytes": None if took is None else took.spill_stores + took.spill_loads,
    }


def _nothing(notes: Iterable[str]) -> AttnccError:
    return AttnccError(
        Diagnostic(
            "A521",
            "there is nothing to tune: none of the candidates can be",
            notes=tuple(dict.fromkeys(notes)),
            help="choose others, or leave the tiles out",
        )
    )
