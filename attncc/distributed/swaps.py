"""Swaps of two chunks between the slowest rank and another, while they make all layers together faster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cost import Floats, Loads, Owners, combined_work, estimate, ideal_seconds
from .machine import Machine
from .relays import share

GOOD = 1.005  # times the ideal: nothing is left to gain
CANDIDATES = 64  # swaps of a step that are looked at closely
TRIALS = 6  # of those, the best are made until one helps
# `Budget`: an element of tables for each ROWS x ROWS pairs of rows, timed on one core (docs/distributed.md). A step
# counts as STEP elements beside those of its tables: its calls of NumPy take as long, however small these are.
ROWS = 96
STEP = 1 << 12

Ints = NDArray[np.int64]
Rows = NDArray[np.float32]


class Budget:
    """How much all searches of a plan may look at, in elements of their tables.

    From 64k rows on it grows as attention's own work does, with their square: these are planned in tens of
    milliseconds, 512k within a second.
    """

    def __init__(self, rows: int) -> None:
        self._left = (max(rows, 1 << 16) // ROWS) ** 2

    def takes(self, loads: Loads, chunks: int, machine: Machine) -> bool:
        """Takes a step from what is left; False where nothing is."""
        self._left -= STEP + len(loads) * chunks * (machine.ranks + 2 * CANDIDATES)
        return self._left > 0


def improved(loads: Loads, owners: Owners, machine: Machine, steps: int, budget: Budget) -> tuple[Owners, int]:
    """The assignment after at most so many swaps, and how many there were."""
    search: _Search | None = None
    made = 0
    while made < steps and budget.takes(loads, len(owners), machine):
        search = search or _Search(loads, owners.copy(), machine)
        if not search.step():
            break
        made += 1
    return (search.owners if search else owners), made


class _Measured(NamedTuple):
    """What all layers take: in all, by rank with rows that travel, by rank without; and of sending, by chunk and rank.
    `wanted`: of each load, rows of each chunk that each rank needs, as if what its chunks need of one were nested."""

    total: float
    by_rank: Floats
    compute: Floats
    sent: Floats
    sends: Floats
    wanted: list[Rows]


class _Search:
    """The owners, and what each rank takes for all layers. `rest`: of each load, the rows of all chunks that a chunk's
    rank needs without it, [chunks, chunks]; a swap changes those of two ranks."""

    def __init__(self, loads: Loads, owners: Owners, machine: Machine) -> None:
        self.loads, self.owners, self.machine = loads, owners, machine
        self.work = combined_work(loads)
        self.goal = GOOD * ideal_seconds(loads, machine.ranks)
        self.rest = [np.zeros_like(load.by_pair) for load in loads]
        self._put_rest(np.argsort(owners, kind="stable").reshape(machine.ranks, -1))
        self.now = self._measured()

    def _put_rest(self, members: Ints) -> None:
        """Of some ranks with these chunks, [ranks, chunks of each]."""
        for load, rest in zip(self.loads, self.rest, strict=True):
            rest[members] = _without_each(load.by_pair[members])

    def _measured(self) -> _Measured:
        each = len(self.owners) // self.machine.ranks
        first = np.argsort(self.owners, kind="stable")[::each]  # a chunk of each rank
        total, by_rank, sent = 0.0, np.zeros(self.machine.ranks), np.zeros(len(self.owners))
        found = []
        for load, rest in zip(self.loads, self.rest, strict=True):
            wanted = np.maximum(rest[first], load.by_pair[first])
            seconds, of_chunk = estimate(load, wanted, self.owners, self.machine)
            total += load.layers * float(seconds.max())
            by_rank += load.layers * seconds
            sent += load.layers * of_chunk
            found.append(wanted)
        return _Measured(total, by_rank, self._by_rank(self.work), sent, self._by_rank(sent), found)

    def _by_rank(self, of_chunk: Floats) -> Floats:
        return np.bincount(self.owners, of_chunk, self.machine.ranks).astype(np.float64)

    def step(self) -> bool:
        """Makes the best of the swaps looked at; False if none helps."""
        if self.now.total <= self.goal:
            return False
        slowest = int(np.argmax(self.now.by_rank))
        own, other = self._candidates(slowest)
        after = self._after(slowest, own, other)
        best = np.argsort(after, kind="stable")[:TRIALS]
        helps = after[best] < self.now.by_rank[slowest] * (1 - 1e-6)
        return any(self._try(own[which], other[which]) for which in best[helps])

    def _try(self, i: int, j: int) -> bool:
        """Swaps two chunks, unless that makes another rank the slowest, and slower than before."""
        before = self.now
        self._swap(i, j)
        self.now = self._measured()
        if self.now.total <= before.total * (1 + 1e-9):
            return True
        self._swap(i, j)
        self.now = before
        return False

    def _swap(self, i: int, j: int) -> None:
        owners = self.owners
        owners[i], owners[j] = owners[j], owners[i]
        self._put_rest(np.stack([np.flatnonzero(owners == owners[chunk]) for chunk in (i, j)]))

    def _candidates(self, slowest: int) -> tuple[Ints, Ints]:
        """Chunks of the slowest rank and those of others that they may be swapped for, the most promising first."""
        now, mine, others = self.now, np.flatnonzero(self.owners == slowest), np.flatnonzero(self.owners != slowest)
        rank, limit = self.owners[others], now.by_rank[slowest]
        after = np.zeros((len(mine), len(others)))
        for of_chunk, of_rank in ((self.work, now.compute), (now.sent, now.sends)):
            change = of_chunk[others] - of_chunk[mine][:, None]
            after = np.maximum(after, np.maximum(of_rank[slowest] + change, of_rank[rank] - change))
        if max(now.compute[slowest], now.sends[slowest]) >= 0.999 * limit:
            near = self.machine.same_node[slowest][rank]
            value = np.where(after < limit, np.maximum(after, now.by_rank[rank]) * np.where(near, 1, 1.01), np.inf)
        else:
            most = max(limit * 0.98, float(now.compute.max()))
            value = np.where(after <= most, -self._shared(mine)[:, others], np.inf)
        i, j = np.unravel_index(_least(value.ravel(), CANDIDATES), value.shape)
        return mine[i], others[j]

    def _shared(self, mine: Ints) -> Floats:
        """Bytes that each chunk needs of what the rank needs anyway without one of its own: [mine, chunks]."""
        total = np.zeros((len(mine), len(self.work)))
        for load, rest in zip(self.loads, self.rest, strict=True):
            total += load.layers * load.row_bytes * (rest[mine] @ load.by_source)
        return total

    def _after(self, slowest: int, own: Ints, other: Ints) -> Floats:
        """The slower of the two ranks after each swap, by work and what they receive."""
        ranks = np.concatenate([np.full(len(own), slowest), self.owners[other]])
        seconds = self._of_ranks(ranks, np.concatenate([own, other]), np.concatenate([other, own]))
        return np.asarray(seconds.reshape(2, -1).max(axis=0))

    def _of_ranks(self, ranks: Ints, leaves: Ints, comes: Ints) -> Floats:
        """Of ranks that get another chunk for one of their own."""
        each, node = np.arange(len(ranks)), self.machine.node
        near = node[self.owners] == node[:, None]
        inside_node = (near & (self.owners != np.arange(self.machine.ranks)[:, None]))[ranks]
        inside_node[each, comes], inside_node[each, leaves] = False, near[ranks, comes]
        far = ~near[ranks]
        far[each, comes], far[each, leaves] = False, ~near[ranks, comes]
        total = np.zeros(len(ranks))
        for load, rest, wanted in zip(self.loads, self.rest, self.now.wanted, strict=True):
            rows = np.maximum(rest[leaves], load.by_pair[comes])
            inside = (rows * inside_node).sum(axis=1) * load.row_bytes / self.machine.nvlink
            between = 0.0
            if self.machine.nodes > 1:
                most, sum_of_others = self._of_others(wanted, ranks)
                taken = rows * share(np.maximum(rows, most), rows + sum_of_others)
                between = (taken * far).sum(axis=1) * load.row_bytes / self.machine.network
            compute = self._by_rank(load.by_chunk)[ranks] + load.by_chunk[comes] - load.by_chunk[leaves]
            total += load.layers * np.maximum(compute, np.maximum(inside, between))
        return total

    def _of_others(self, wanted: Rows, ranks: Ints) -> tuple[Rows, Rows]:
        """Rows of each chunk that the other ranks of each rank's node need, the most and the sum: [ranks, chunks]."""
        by_node = wanted.reshape(self.machine.nodes, -1, wanted.shape[1])
        most = _without_each(by_node).reshape(wanted.shape)
        total = (by_node.sum(axis=1, keepdims=True) - by_node).reshape(wanted.shape)
        return most[ranks], total[ranks]


def _without_each(x: Rows) -> Rows:
    """The maximum over axis 1 of all but each one, or 0: [a, b, c] to [a, b, c]."""
    if x.shape[1] == 2:
        return x[:, ::-1]
    before, behind = np.zeros_like(x), np.zeros_like(x)
    for i in range(1, x.shape[1]):
        np.maximum(before[:, i - 1], x[:, i - 1], out=before[:, i])
        np.maximum(behind[:, -i], x[:, -i], out=behind[:, -i - 1])
    return np.maximum(before, behind, out=before)


def _least(value: Floats, count: int) -> Ints:
    """Where the least finite values are, the least first, of equals the first."""
    finite = np.flatnonzero(np.isfinite(value))
    if finite.size > count:
        own = value[finite]
        finite = finite[own <= np.partition(own, count - 1)[count - 1]]
    return finite[np.argsort(value[finite], kind="stable")[:count]]
