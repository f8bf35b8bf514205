"""How long launches take on a GPU at its power limit, for `attncc tune`."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

ROUNDS = 7
WINDOW_MS = 40.0

Launch = Callable[[], object]


def milliseconds(launches: Sequence[Launch], rounds: int = ROUNDS, window_ms: float = WINDOW_MS) -> list[float]:
    """Of one call of each, on CuPy's current stream: the median of windows, those of all launches in random order.

    A card at its power limit clocks by what ran just before, so each window settles before it is timed.
    """
    import cupy

    repeats = [max(1, round(window_ms / _timed(cupy, launch, 3))) for launch in launches]
    windows: list[list[float]] = [[] for _ in launches]
    order = random.Random(0)
    for _ in range(rounds):
        for number in order.sample(range(len(launches)), len(launches)):
            _timed(cupy, launches[number], repeats[number] // 2 + 1)
            windows[number].append(_timed(cupy, launches[number], repeats[number]))
    return [statistics.median(found) for found in windows]


def _timed(cupy: Any, launch: Launch, repeats: int) -> float:
    launch()  # loads modules at the first time
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    for _ in range(repeats):
        launch()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) / repeats
