"""How long a GPU is busy with thread blocks of known times."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappushpop

_MANY = 16  # blocks for each worker, from which on the last ones hardly matter


def makespan(times: Sequence[float], copies: int, workers: int) -> float:
    """Until all is done, if whoever is free takes the longest that is left (Graham, "Bounds on multiprocessing timing
    anomalies", 1969). There are `copies` of each of `times`."""
    if copies * len(times) > _MANY * workers:
        return max(copies * sum(times) / workers, *times)
    busy = [0.0] * workers
    heapify(busy)
    longest = 0.0
    for time in sorted(times, reverse=True):
        for _ in range(copies):
            ends = busy[0] + time
            heappushpop(busy, ends)
            longest = max(longest, ends)
    return longest
