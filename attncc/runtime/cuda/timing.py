"""How long launches take on a GPU under its power limit: the one way in which attncc times anything.

A card at its power limit clocks by what ran just before, so short bursts after a rest flatter, and a light neighbour
lends its budget to the next kernel. Here every launch sequence has windows of its own: each window first settles
untimed, then is timed between events; the windows of all candidates come in random order, and the median counts. One
longer window for each candidate then records the SM clock and the mean power.

A `Stopwatch` does the timing: CuPy's here, for `attncc tune`; torch's in `attncc.bench.stopwatch`.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

ROUNDS = 9
WINDOW_MS = 60.0
SUSTAINED_S = 0.7
CONFIDENCE = 0.95
_L2_FILLS, _MOST_COPIES = 2, 16  # how often the operands of all copies fill the L2 cache

Launch = Callable[[], object]


def copies_beyond_cache(operand_bytes: int, l2_bytes: int) -> int:
    """How many copies of a call's operands take turns, so that none are still in the L2 cache."""
    return min(-(-_L2_FILLS * l2_bytes // operand_bytes), _MOST_COPIES)


class Sustained(NamedTuple):
    """Milliseconds of a launch in a long window, with the SM clock and the power; None where no meter is installed."""

    milliseconds: float
    sm_clock_mhz: float | None
    watts: float | None


class Windows(Protocol):
    """What times windows."""

    def window(self, launch: Launch, repeats: int, before: int = 0) -> float:
        """Milliseconds of a launch, of so many in a row. Launches `before` them aren't timed: they settle the
        clock, and the GPU is still busy with them while the host queues the others."""


class Stopwatch(Windows, Protocol):
    """What times all that `Timing` has."""

    def sustained(self, launch: Launch, repeats: int) -> Sustained:
        """The same of a long window, while which the meters are read."""

    def host(self, launch: Launch) -> float:
        """Milliseconds that the host takes to queue a launch while the GPU's queue is short."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds per launch; `spread` is (slowest - fastest window) / median. `windows` come in order of rounds."""

    milliseconds: float
    spread: float
    sustained_milliseconds: float
    sm_clock_mhz: float | None
    watts: float | None
    windows: tuple[float, ...] = ()
    host_milliseconds: float = 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Where the median lies at 95% confidence."""
        return median_interval(self.windows)

    @property
    def host_bound(self) -> bool:
        """Whether the GPU waited for the host, so that the time isn't that of kernels."""
        return self.host_milliseconds > 0.9 * self.milliseconds


def compare(
    launches: Mapping[str, Launch],
    stopwatch: Stopwatch,
    *,
    rounds: int = ROUNDS,
    window_ms: float = WINDOW_MS,
    sustained_s: float = SUSTAINED_S,
    seed: int = 0,
) -> dict[str, Timing]:
    """Times candidates for the same work against each other."""
    found = in_turns(launches, stopwatch, rounds=rounds, window_ms=window_ms, seed=seed)
    return {name: _timing(launches[name], windows, stopwatch, sustained_s) for name, windows in found.items()}


def in_turns(
    launches: Mapping[str, Launch], stopwatch: Windows, *, rounds: int, window_ms: float, seed: int = 0
) -> dict[str, list[float]]:
    """The windows of each candidate, a round after the other, in random order within a round."""
    repeats = {name: _repeats(launch, stopwatch, window_ms) for name, launch in launches.items()}
    windows: dict[str, list[float]] = {name: [] for name in launches}
    order = random.Random(seed)
    for _ in range(rounds):
        for name in order.sample(list(launches), len(launches)):
            windows[name].append(stopwatch.window(launches[name], repeats[name], before=repeats[name] // 2 + 1))
    return windows


def ratio(timing: Timing, base: Timing) -> tuple[float, tuple[float, float]]:
    """How often as long as `base` a candidate takes: the median over rounds, and its interval. The windows of a round
    stand beside each other in time, so what drifts over rounds cancels."""
    ratios = [one / other for one, other in zip(timing.windows, base.windows, strict=True)]
    return statistics.median(ratios), median_interval(ratios)


def median_interval(values: Iterable[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """A confidence interval of the median by order statistics, which asks nothing of the distribution; least and
    greatest value where there are too few for the confidence."""
    ordered = sorted(values)
    count, outside, cut = len(ordered), 0.0, 0
    while cut < count // 2:
        outside += math.comb(count, cut) / 2 ** (count - 1)
        if outside > 1 - confidence:
            break
        cut += 1
    cut = max(cut - 1, 0)
    return ordered[cut], ordered[-1 - cut]


def _timing(launch: Launch, windows: Sequence[float], stopwatch: Stopwatch, sustained_s: float) -> Timing:
    median = statistics.median(windows)
    sustained = stopwatch.sustained(launch, max(2, round(sustained_s * 1e3 / median)))
    spread = (max(windows) - min(windows)) / median
    return Timing(median, spread, *sustained, tuple(windows), stopwatch.host(launch))


def _repeats(launch: Launch, stopwatch: Windows, window_ms: float) -> int:
    stopwatch.window(launch, 3)  # loads modules, compiles what compiles at run time
    return max(2, round(window_ms / stopwatch.window(launch, 3)))


# -------------------------------------------------------------------- CuPy


class CuPyStopwatch:
    """Windows by CuPy's events."""

    def window(self, launch: Launch, repeats: int, before: int = 0) -> float:
        import cupy

        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        for _ in range(before):
            launch()
        start.record()
        for _ in range(repeats):
            launch()
        end.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) / repeats
