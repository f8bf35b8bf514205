"""How long a GPU is busy with thread blocks of known times."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappushpop

# Blocks for each worker, from which on their sum is the answer. Whoever takes the longest first ends at most one block
# after the mean: a sixteenth of it, if blocks are alike.
_MANY = 16


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
