"""How a team of thread blocks cuts its items: what kernels do on the device (teams.cuh), here for `attncc explain`."""

from __future__ import annotations

from collections.abc import Sequence

from ..decode.facts import LaidOut, Runs

ANYWHERE = -1  # no run is longer for the sake of ending with an item


def cut(
    items: Sequence[int], units: Sequence[int], blocks: int, sequences: int, key_heads: int, *, slack: int
) -> LaidOut:
    """`find_runs`, of a team of `blocks` that has these items, with so many units, sequence by sequence."""
    total, heads = sum(units), sequences * key_heads
    least = -(-total // blocks)
    if heads > blocks:
        size = -(-heads // blocks) * (total // heads)
        whole = _alike(units, sequences) and total % heads == 0 and size <= least + slack
        return LaidOut(items, units, _runs_of(size, total) if whole else _anywhere(total, blocks))
    for size in range(max(least, 1), least + slack + 1):
        rounded = [-(-own // size) * size for own in units]
        if sum(rounded) <= size * blocks:
            return LaidOut(items, rounded, _runs_of(size, sum(rounded)))
    return LaidOut(items, units, _anywhere(total, blocks))


def _alike(units: Sequence[int], sequences: int) -> bool:
    each = len(units) // sequences
    return len({sum(units[first : first + each]) for first in range(0, len(units), each)}) == 1


def _runs_of(size: int, total: int) -> Runs:
    return Runs(size, 0, total, -(-total // size), 1)


def _anywhere(total: int, blocks: int) -> Runs:
    count = max(min(total, blocks), 1)
    return Runs(*divmod(total, count), total, count, 1)
