"""A run of the tuner: candidates are compiled, raced, checked, and the best is held against what the file has.

Its state stays whole at any point. So who is interrupted calls `conclude`, and has what was found until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ..diagnostics import AttnccError, Diagnostic
from ..problem import Problem
from ..runtime.cuda.timing import Launch
from ..schedule.schedule import Schedule
from .candidates import TunedKernel, farther, is_closed, near, of_same_warps, schedules, settings_of, with_settings
from .compiling import LATE, Compiler, Make, settled
from .log import Log, Record
from .machine import Machine
from .model import Model
from .race import HELD, TWIN, Board, Timer, Verdict, confirm, halve, judge, ranked
from .trial import Trial
from .work import Oracle, Work

MOST = 32  # candidates of a race, where the file names none
COMPILING, RACING = 0.5, 0.75  # shares of the budget after which compilation begins no more, and the race ends
LEAST = 0.15  # of the budget: for the race, and for the duel, however late they begin
FEWER = "last by the IO model"

Say = Callable[[str], None]


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
    make: Make = settled
    trials: dict[str, Trial] = field(default_factory=dict)
    verdict: Verdict | None = None
    bits_differ: bool | None = None  # of the winner's result from the held one's; None: not compared

    def __post_init__(self) -> None:
        self.board: Board = self.log.board()
        self._begin = self.machine.clock()
        self._timer: Timer | None = None
        self._spilling_too = self._ran_out = self._went_far = False
        self._oracles: dict[Problem, Oracle] = {}  # of the smaller calls that are held against fp64
        self._checked: dict[str, tuple[str, bool | None]] = {
            record["name"]: (record["trouble"], record["bits_differ"]) for record in self.log.of("checked")
        }

    # ------------------------------------------------------------ what goes on

    def run(self) -> None:
        """All of it. AttnccError A521 if no candidate can be."""
        try:
            self._plan()
            if not self._recall_verdict():
                self._compile(list(self.trials.values()), COMPILING)
                self._race()
        except AttnccError:
            self.log.close()
            raise
        self.conclude()

    def _recall_verdict(self) -> bool:
        """Whether an earlier run came to one."""
        for record in self.log.of("verdict"):
            fields = {name: record[name] for name in ("name", "wins", "gain", "floor")}
            self.verdict = Verdict(**fields, interval=tuple(record["interval"]))
            self.bits_differ = record["bits_differ"]
        return self.verdict is not None

    def conclude(self, *, timing: bool = True) -> None:
        """The verdict on what was timed: the fastest that is right, against what is held. To be called again after an
        interruption, whenever that came; without `timing` it takes no more windows."""
        if self.verdict is None and self.trials:
            self.verdict = self._concluded(timing)
            if self.verdict is not None and timing and not self.is_cut_short:
                self.log.write("verdict", **vars(self.verdict), bits_differ=self.bits_differ)
        self.log.close()

    @property
    def is_cut_short(self) -> bool:
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
        return Verdict(self.baseline, True, 0.0, (0.0, 0.0), 0.0) if self._is_right(self.baseline) else None

    # ------------------------------------------------------------ results

    @property
    def held(self) -> Trial | None:
        """What the file has; None where that can't be."""
        found = self.trials.get(HELD)
        return None if found is None or (found.trouble and not found.spills) else found

    @property
    def baseline(self) -> str:
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
        """What is tried first, in the order of the IO model; and what an earlier run tried."""
        self.say("analysing")
        self.trials[HELD] = self._compiler.plan(HELD, self.kernel.held)
        self._promising(schedules(self.kernel))
        for record in self.log.of("compiled"):
            self._recall(record)
        self.log.check_names([*self.trials, TWIN])

    def _promising(self, found: Iterable[Schedule]) -> list[Trial]:
        """Of those that weren't tried and can be: the first by the IO model, or all that the file names. The others can
        be tried later."""
        possible = [trial for trial in self._add(found) if trial.plan is not None]
        most = len(possible) if is_closed(self.kernel) else MOST
        for trial in possible[most:]:
            self.trials[trial.name] = replace(trial, trouble=FEWER)
        return possible[:most]

    def _add(self, found: Iterable[Schedule]) -> list[Trial]:
        """Those that are no other one's kernel, or can't be."""
        settled = [trial for trial in self.trials.values() if trial.trouble not in (FEWER, LATE)]
        names, known, added = {trial.name for trial in settled}, {trial.plan for trial in settled} - {None}, []
        for trial in self._compiler.planned(item for item in found if settings_of(item) not in names):
            if trial.name not in self.trials and trial.plan is None and not self.log.records:
                self.log.write("refused", name=trial.name, trouble=trial.trouble)
            if trial.plan is None or trial.plan not in known:
                known |= {trial.plan}
                self.trials[trial.name] = trial
                added.append(trial)
        return added

    def _recall(self, record: Record) -> None:
        """What ptxas said against a candidate is said, and isn't asked for again."""
        name = record["name"]
        if name not in self.trials:
            self.trials[name] = self._compiler.plan(name, with_settings(self.kernel, record["settings"]))
        self.trials[name] = replace(self.trials[name], trouble=record["trouble"], spills=record["spills"])

    def _compile(self, trials: Iterable[Trial], share: float, least: int = 2) -> None:
        """Those that can be. `share` of the budget, after which no more begin."""
        wanted = [trial for trial in trials if trial.plan is not None and not trial.trouble]
        recorded = {record["name"] for record in self.log.of("compiled")}
        ends = self._begin + share * self.budget
        for number, trial in enumerate(self._compiler.compiled(wanted, ends, least)):
            self.trials[trial.name] = trial
            if trial.name not in recorded and trial.trouble != LATE:
                self.log.write("compiled", **_compiled_record(trial))
            self.say(f"compiling {number + 1} of {len(wanted)}")

    @property
    def _compiler(self) -> Compiler:
        return Compiler(self.kernel, self.model, self.machine.clock, self.make)

    # ------------------------------------------------------------ times

    def _race(self) -> None:
        """Times what was compiled, then what stands beside the fastest, until nothing there is faster; then all with
        its warps; then, once, what stands farther away, and so on beside that."""
        timer = self._timer = self._prepared()
        names = [name for name in timer.launches if name not in (HELD, TWIN)]
        while names:
            timer.warm()
            first, *_ = [*halve(timer, self.board, names, self.work.seed), HELD]
            self._ran_out = not timer.has_time_for(HELD)
            if first == HELD or self.board.ratio(first) >= 1:
                first = self.baseline
            names = [] if self._ran_out else self._fresh(timer, first)
            if names and first != self.baseline:
                names.append(first)  # it meets the new ones

    def _fresh(self, timer: Timer, name: str) -> list[str]:
        """Compiles and loads what wasn't tried: what stands beside a trial, else the others with its warps, else what
        stands farther away."""
        plan = self.trials[name].plan
        assert plan is not None
        launches = self._made(near(self.kernel, plan)) or self._made(of_same_warps(self.kernel, plan))
        if not launches and not self._went_far:
            self._went_far = True
            launches = self._made(farther(self.kernel, plan))
        timer.launches |= launches
        return list(launches)

    def _made(self, found: Iterable[Schedule]) -> dict[str, Launch]:
        added = self._promising(found)
        self._compile(added, RACING, least=0)
        return self._launches(trial.name for trial in added)

    def _prepared(self) -> Timer:
        """With a launch of each, and a twin of the held one."""
        if not any(map(self._runs, self.trials.values())):
            self._spilling_too = True
        launches = self._launches(name for name in self.trials)
        if not launches:
            raise _nothing(trial.trouble for trial in self.trials.values())
        baseline = self.baseline
        launches[HELD] = launches.pop(baseline)
        launches[TWIN] = self.machine.launch(self.kernel.with_schedule(self.trials[baseline].schedule))
        return Timer(self.machine, launches, self._until(RACING), self._tick)

    def _until(self, share: float) -> float:
        """The time when so much of the budget is gone. If compilation took longer, there is still some time to measure:
        a verdict a little later is better than none."""
        return max(self._begin + share * self.budget, self.machine.clock() + LEAST * self.budget)

    def _launches(self, names: Iterable[str]) -> dict[str, Launch]:
        """Of those that run; each was called once."""
        launches = dict[str, Launch]()
        for name in names:
            trial = self.trials[name]
            if not (self._runs(trial) or (name == HELD and self.held is not None)):
                continue
            try:
                launch = self.machine.launch(self.kernel.with_schedule(trial.schedule))
                launch()
            except AttnccError as error:
                self.trials[name] = replace(trial, trouble=error.diagnostics[0].message, spills=False)
            else:
                launches[name] = launch
            self.say(f"loading {trial.tiles}")
        return launches

    def _tick(self) -> None:
        timed = sum(name in self.board.raced for name in self.trials)
        self.say("confirming" if self.board.confirmed else f"timing {timed} schedules")

    # ------------------------------------------------------------ the end

    def _confirmed(self, name: str, timing: bool) -> Verdict:
        if not timing or self._timer is None or name not in self._timer.launches:
            return judge(self.board, name)
        timer = replace(self._timer, deadline=self._until(1.0))
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
        trial = self.trials[name]
        small = self.work.smaller(trial.usual, trial.resident)
        found = self.machine.results(self.kernel.with_schedule(trial.schedule), small)
        oracle = self._oracles.setdefault(small.problem, Oracle(small))
        if (trouble := oracle.judge(found)) or self.held is None:
            return trouble, None
        own = self.machine.results(self.kernel.with_schedule(self.held.schedule), small)
        return "", any(one.tobytes() != other.tobytes() for one, other in zip(own, found, strict=True))


def _compiled_record(trial: Trial) -> dict[str, object]:
    took = trial.resources
    return {
        "name": trial.name,
        "settings": None if trial.schedule is None else trial.schedule.chosen,
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
