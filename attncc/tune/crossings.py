"""Measures where the forms of serving calls cross on a GPU: `attncc tune --crossings`.

For each point, calls are timed in every form that some value of the point gives them. The value wins whose forms take
the least time together. Differences are some percent, so the rules of `race` hold: ratios of windows that stand beside
each other in time, order statistics, and fresh windows for the winner of a choice among many.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..kernels.crossings import NEVER, Chip, Crossings
from ..runtime.cuda.timing import median_interval
from .points import POINTS, Point, Sample
from .race import SURE

RACE, CONFIRM = 5, 15  # rounds: to choose a value, and to hold it against the one there was
PASSES = 2  # over all points: what is best at one depends on the others
# Share of the time that another value must save, over the calls that it changes. On H200s two values were up to 0.7 %
# farther apart in one run than in another, whose arrays lay elsewhere.
LEAST_GAIN = 0.01

Say = Callable[[str], None]


class Forms(Protocol):
    """A GPU that times calls in the form that crossing points give them."""

    @property
    def multiprocessors(self) -> int: ...

    def clock(self) -> float:
        """Seconds."""

    def prepare(self) -> None:
        """Compiles what will be timed. AttnccError if it can't."""

    def form(self, sample: Sample, crossings: Crossings) -> Hashable:
        """What tells the launch of a call from other forms of it."""

    def window(self, sample: Sample, crossings: Crossings) -> float:
        """Milliseconds of a call, in a window of many. MemoryError if the GPU hasn't room for its arrays."""


@dataclass(frozen=True)
class Timed:
    """A call in a form that some values of a point give it. `ratio`: its time over that in the form that it had."""

    sample: Sample
    values: tuple[float, ...]
    ratio: float


@dataclass(frozen=True)
class Found:
    """What became of a point. `gain`: the share of the time that the new value saves, over the calls whose form it
    changes, with the interval; `why`: why there is none, or none is known."""

    point: Point
    was: float
    now: float
    gain: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)
    why: str = ""
    is_measured: bool = True
    timed: tuple[Timed, ...] = ()


class TimeIsOver(Exception):
    """The deadline came before a point was measured."""


@dataclass
class Measurement:
    """Point after point, each with what was found for the others. `budget`: seconds."""

    gpu: Forms
    crossings: Crossings
    budget: float
    say: Say = lambda what: None
    points: tuple[Point, ...] = POINTS
    found: dict[str, Found] = field(default_factory=dict)  # by name
    _deadline: float = math.inf
    _order: random.Random = field(default_factory=lambda: random.Random(0))

    def run(self) -> None:
        """Until all points are measured, or time is over: `found` has all of them, or after Ctrl-C those before it. If
        compilation takes long, windows still get half of the budget."""
        ends = self.gpu.clock() + self.budget
        self.say("compiling")
        self.gpu.prepare()
        self._deadline = max(ends, self.gpu.clock() + self.budget / 2)
        for point in self.points * PASSES:
            self.say(point.name)
            try:
                self._keep(self._measured(point))
            except TimeIsOver:
                self._keep(self._unknown(point, "time was over"))
            except MemoryError:
                self._keep(self._unknown(point, "the GPU has too little memory for its calls"))

    def _unknown(self, point: Point, why: str) -> Found:
        was = getattr(self.crossings, point.name)
        return Found(point, was, was, why=why, is_measured=False)

    def _keep(self, found: Found) -> None:
        """Of a later pass only what moves."""
        name = found.point.name
        first = self.found.setdefault(name, found)
        if found.now != found.was:
            self.found[name] = replace(found, was=first.was)
            self.crossings = self.crossings._replace(**{name: found.now})

    def _measured(self, point: Point) -> Found:
        choice = _Choice.of(point, self.gpu, self.crossings)
        was = choice.was
        if not choice.samples:
            return self._unknown(point, "this GPU has one form of these calls")
        times = self._times(choice, choice.values, RACE)
        timed, ratios = tuple(_timed(choice, times)), _means(choice, choice.values, times)
        saved = {value: -choice.changed(value) * math.log(statistics.median(ratios[value])) for value in ratios}
        best = max(choice.values, key=lambda value: (saved[value], -abs(value - was)))
        if best == was or statistics.median(ratios[best]) > 1 - LEAST_GAIN:
            return Found(point, was, was, why="no other value was faster", timed=timed)
        sure = _means(choice, [best], self._times(choice, [best], CONFIRM))[best]
        low, high = median_interval(sure, SURE)
        gain, interval = 1 - statistics.median(sure), (1 - high, 1 - low)
        if interval[0] < LEAST_GAIN:
            return Found(point, was, was, gain, interval, f"{shown(best)} wasn't faster for sure", timed=timed)
        return Found(point, was, best, gain, interval, timed=timed)

    def _times(self, choice: _Choice, values: Sequence[float], rounds: int) -> _Times:
        return {sample: self._of_sample(choice, sample, values, rounds) for sample in choice.samples}

    def _of_sample(
        self, choice: _Choice, sample: Sample, values: Sequence[float], rounds: int
    ) -> dict[Hashable, list[float]]:
        """For each round those of the forms that values give a call, over the form there was: a window of each, between
        two of that one."""
        held = choice.forms[sample, choice.was]
        others = {form: value for value in values if (form := choice.forms[sample, value]) != held}
        found: dict[Hashable, list[float]] = {form: [] for form in others}
        before = self._window(choice, sample, choice.was) if others else 0.0
        for _ in range(rounds if others else 0):
            times = {form: self._window(choice, sample, others[form]) for form in self._shuffled(others)}
            after = self._window(choice, sample, choice.was)
            for form, time in times.items():
                found[form].append(2 * time / (before + after))
            before = after
        return found

    def _shuffled(self, forms: Iterable[Hashable]) -> list[Hashable]:
        found = list(forms)
        return self._order.sample(found, len(found))

    def _window(self, choice: _Choice, sample: Sample, value: float) -> float:
        if self.gpu.clock() > self._deadline:
            raise TimeIsOver
        return self.gpu.window(sample, self.crossings._replace(**{choice.name: value}))


@dataclass(frozen=True)
class _Choice:
    """Of one point: calls whose form it decides, and the form that each value gives each of them."""

    name: str
    was: float
    values: tuple[float, ...]
    samples: tuple[Sample, ...]
    forms: dict[tuple[Sample, float], Hashable]

    def changed(self, value: float) -> int:
        """The number of calls that get another form with a value than they have."""
        return sum(self.forms[sample, value] != self.forms[sample, self.was] for sample in self.samples)

    @classmethod
    def of(cls, point: Point, gpu: Forms, crossings: Crossings) -> _Choice:
        was = getattr(crossings, point.name)
        values = tuple(sorted({*point.values, was}))
        samples = tuple(point.samples(Chip(gpu.multiprocessors, crossings)))
        forms = {
            (sample, value): gpu.form(sample, crossings._replace(**{point.name: value}))
            for sample in samples
            for value in values
        }
        decided = tuple(item for item in samples if len({forms[item, value] for value in values}) > 1)
        return cls(point.name, was, values, decided, forms)


# Of each call and form, for each round: the time over that of the form that the call had.
_Times = Mapping[Sample, Mapping[Hashable, Sequence[float]]]


def _means(choice: _Choice, values: Sequence[float], times: _Times) -> dict[float, list[float]]:
    """For each round the time with each value over that with the one there was: a mean over the calls whose form it
    changes."""
    found: dict[float, list[float]] = {}
    rounds = max((len(ratios) for of in times.values() for ratios in of.values()), default=1)
    for value in values:
        changed = [of[form] for sample, of in times.items() if (form := choice.forms[sample, value]) in of]
        found[value] = [statistics.geometric_mean(ratios) for ratios in zip(*changed, strict=True)] or [1.0] * rounds
    return found


def _timed(choice: _Choice, times: _Times) -> Iterator[Timed]:
    for sample, of_sample in times.items():
        for form, ratios in of_sample.items():
            values = tuple(value for value in choice.values if choice.forms[sample, value] == form)
            yield Timed(sample, values, statistics.median(ratios))


def shown(value: float) -> str:
    """A value of a point, for people."""
    return "never" if value >= NEVER else f"{value:g}"
