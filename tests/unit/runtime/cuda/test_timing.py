"""How launches are timed, by a stopwatch whose GPU is a list of numbers."""

from __future__ import annotations

import math
from itertools import count

import pytest

from attncc.runtime.cuda.timing import Sustained, Timing, compare, in_turns, median_interval, ratio


class Drifting:
    """A GPU that gets slower with every window; a launch is a number that says how long it takes."""

    def __init__(self) -> None:
        self.log: list[tuple[float, int, int]] = []
        self.windows = count()

    def window(self, launch, repeats: int, before: int = 0) -> float:
        self.log.append((launch(), repeats, before))
        return launch() * (1 + 0.01 * next(self.windows))

    def sustained(self, launch, repeats: int) -> Sustained:
        return Sustained(launch() * 1.1, 1500.0, repeats * 1.0)

    def host(self, launch) -> float:
        return 0.95


def test_candidates_take_turns_at_random_and_settle_first() -> None:
    watch = Drifting()
    found = in_turns({"a": lambda: 1.0, "b": lambda: 2.0, "c": lambda: 4.0}, watch, rounds=8, window_ms=60)
    assert {name: len(windows) for name, windows in found.items()} == {"a": 8, "b": 8, "c": 8}
    timed = watch.log[6:]  # two for each before, to load what there is to load and to count repeats
    rounds = [tuple(item[0] for item in timed[start : start + 3]) for start in range(0, 24, 3)]
    assert all(sorted(item) == [1, 2, 4] for item in rounds)
    assert len(set(rounds)) > 2
    assert all(before == repeats // 2 + 1 for _, repeats, before in timed)
    assert {launch: repeats for launch, repeats, _ in timed} == {1.0: 59, 2.0: 29, 4.0: 14}


def test_drift_cancels_in_ratios() -> None:
    timings = compare({"slow": lambda: 3.0, "fast": lambda: 1.0}, Drifting(), rounds=9)
    assert timings["fast"].spread > 0.1
    times, (low, high) = ratio(timings["slow"], timings["fast"])
    assert times == pytest.approx(3, rel=0.01)
    assert 2.96 < low <= times <= high < 3.04
    assert timings["fast"].sustained_milliseconds == 1.1
    assert timings["slow"].watts == round(0.7e3 / timings["slow"].milliseconds)
    assert not timings["slow"].host_bound
    assert Timing(1, 0, 1, None, None, (1.0,), 0.95).host_bound


@pytest.mark.parametrize(("values", "cut"), [(1, 0), (2, 0), (5, 0), (6, 0), (9, 1), (15, 3), (30, 9)])
def test_intervals_hold_the_median_as_often_as_they_say(values: int, cut: int) -> None:
    """The k-th least and greatest of n values have the median between them unless fewer than k fall on a side."""
    assert median_interval(range(values)) == (cut, values - 1 - cut)
    outside = sum(math.comb(values, k) for k in range(cut + 1)) / 2 ** (values - 1)
    beyond = outside + math.comb(values, cut + 1) / 2 ** (values - 1)
    assert outside <= 0.05 or cut == 0
    assert beyond > 0.05
