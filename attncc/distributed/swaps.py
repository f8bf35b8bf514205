"""Swaps of two chunks between the slowest rank and another, while they make all layers together faster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .cost import Owners
from .machine import Machine
from .products import product
from .tables import Tables
from .travel import Floats, Ints, Rows, Travel, share, sums, without_each

GOOD = 1.005  # times the ideal: nothing is left to gain
CANDIDATES = 64  # swaps of a step that are looked at closely
TRIALS = 6  # of those, the best are made until one helps
# `Budget`: an element of tables for each ROWS x ROWS pairs of rows, timed on one core (docs/distributed.md). A step
# counts as STEP elements beside those of its tables: its calls of NumPy take as long, however small these are.
ROWS = 96
STEP = 1 << 12


class Budget:
    """How much all searches of a plan may look at, in elements of their tables.

    From 64k rows on it grows as attention's own work does, with their square: these are planned in tens of
    milliseconds, 512k within a second.
    """

    def __init__(self, rows: int) -> None:
        self._left = (max(rows, 1 << 16) // ROWS) ** 2

    def takes(self, tables: Tables, machine: Machine) -> bool:
        """Takes a step from what is left; False where nothing is."""
        masks, chunks = tables.by_chunk.shape
        self._left -= STEP + masks * chunks * (machine.ranks + 2 * CANDIDATES)
        return self._left > 0


def improved(tables: Tables, owners: Owners, machine: Machine, steps: int, budget: Budget) -> tuple[Owners, int]:
    """The assignment after at most so many swaps, and how many there were."""
    search: _Search | None = None
    made = 0
    while made < steps and budget.takes(tables, machine):
        search = search or _Search(tables, owners.copy(), machine)
        if not search.step():
            break
        made += 1
    return (search.owners if search else owners), made


class _Measured(NamedTuple):
    """What all layers take: in all, by rank with rows that travel, by rank without; and of sending, by chunk and rank.
    `of_masks`: by rank without, of one layer of each mask, [masks, ranks]."""

    total: float
    by_rank: Floats
    compute: Floats
    sent: Floats
    sends: Floats
    of_masks: Floats
    travel: Travel


class _Search:
    """The owners, and what each rank takes for all layers.

    `members`: each rank's chunks, [ranks, chunks of each]. `rest`: of each mask, the rows of all chunks that a chunk's
    rank needs without it, [masks, chunks, chunks]. `wanted`: what a rank needs, as if what its chunks need of one were
    nested, [masks, ranks, chunks]; `most` and `total` of that, over the other ranks of its node.
    """

    def __init__(self, tables: Tables, owners: Owners, machine: Machine) -> None:
        self.tables, self.owners, self.machine = tables, owners, machine
        self.goal = GOOD * tables.ideal_seconds(machine.ranks)
        self.members = np.argsort(owners, kind="stable").reshape(machine.ranks, -1)
        self.rest, self.wanted = np.zeros_like(tables.by_pair), self._wanted(self.members)
        self.most, self.total = np.zeros_like(self.wanted), np.zeros_like(self.wanted)
        self._put(np.arange(machine.ranks), np.arange(machine.nodes))
        self.now = self._measured(Travel.of(self.wanted, self.members, owners, machine))

    def _wanted(self, members: Ints) -> Rows:
        """Of ranks with these chunks, [ranks, chunks of each]."""
        return np.asarray(np.maximum.reduce(self.tables.by_pair.take(members, axis=1), axis=2))

    def _put(self, ranks: Ints, nodes: Ints) -> None:
        """What follows from the `members` of these ranks, and from what those of these nodes want."""
        members = self.members[ranks]
        self.rest[:, members] = without_each(self.tables.by_pair.take(members, axis=1))
        if self.machine.nodes > 1:
            ranks = self.machine.ranks_of(nodes)
            rows = self.wanted.take(ranks, axis=1).reshape(len(self.wanted), len(nodes), -1, len(self.owners))
            self.most[:, ranks] = without_each(rows).reshape(len(rows), len(ranks), -1)
            self.total[:, ranks] = (sums(rows, axis=2, keepdims=True) - rows).reshape(len(rows), len(ranks), -1)

    def _measured(self, travel: Travel) -> _Measured:
        tables, machine = self.tables, self.machine
        layers, row_bytes = tables.layers, tables.row_bytes
        of_masks, compute = tables.compute(self.owners, machine.ranks)
        to_ranks, to_nodes = travel.sent()
        inside, between = travel.busiest(to_ranks, to_nodes, self.members)
        seconds = np.maximum(inside * row_bytes / machine.nvlink, between * row_bytes / machine.network)
        seconds = layers * np.maximum(of_masks, seconds)
        of_chunk = (to_ranks / machine.nvlink + to_nodes / machine.network) * row_bytes
        sent = sums(layers * of_chunk, axis=0, dtype=np.float64)
        sends = np.asarray(np.bincount(self.owners, sent, machine.ranks), np.float64)
        total = float(sums(np.maximum.reduce(seconds, axis=1)))
        return _Measured(total, sums(seconds, axis=0), compute, sent, sends, of_masks, travel)

    def step(self) -> bool:
        """Makes the best of the swaps looked at; False if none helps."""
        if self.now.total <= self.goal:
            return False
        slowest = int(np.argmax(self.now.by_rank))
        own, other = self._candidates(slowest)
        limit = self.now.by_rank[slowest] * (1 - 1e-6)
        after = self._after(slowest, own, other)
        best = after.argsort(kind="stable")[:TRIALS]
        return any(self._try(own[which], other[which]) for which in best[after[best] < limit])

    def _try(self, i: int, j: int) -> bool:
        """Swaps two chunks, unless that makes another rank the slowest, and slower than before."""
        owners, now, ranks = self.owners, self.now, self.owners[[i, j]]
        nodes = np.array(sorted(set(self.machine.node[ranks].tolist())))
        before, wanted = self.members[ranks], self.wanted[:, ranks]
        owners[i], owners[j] = owners[j], owners[i]
        self.members[ranks] = (owners == ranks[:, None]).nonzero()[1].reshape(2, -1)
        self.wanted[:, ranks] = self._wanted(self.members[ranks])
        of_nodes = self.wanted.take(self.machine.ranks_of(nodes), axis=1)
        self.now = self._measured(now.travel.after(nodes, of_nodes, self.members, owners, self.machine))
        if self.now.total <= now.total * (1 + 1e-9):
            self._put(ranks, nodes)
            return True
        owners[i], owners[j] = owners[j], owners[i]
        self.members[ranks], self.wanted[:, ranks], self.now = before, wanted, now
        return False

    def _candidates(self, slowest: int) -> tuple[Ints, Ints]:
        """Chunks of the slowest rank and those of others that they may be swapped for, the most promising first."""
        now, mine, (others,) = self.now, self.members[slowest], (self.owners != slowest).nonzero()
        rank, limit = self.owners[others], now.by_rank[slowest]
        after = np.zeros((len(mine), len(others)))
        for of_chunk, of_rank in ((self.tables.work, now.compute), (now.sent, now.sends)):
            change = of_chunk[others] - of_chunk[mine][:, None]
            np.maximum(after, of_rank[slowest] + change, out=after)
            np.maximum(after, of_rank[rank] - change, out=after)
        if max(now.compute[slowest], now.sends[slowest]) >= 0.999 * limit:
            near = self.machine.same_node[slowest][rank]
            value = np.maximum(after, now.by_rank[rank]) * np.where(near, 1, 1.01)
            value[after >= limit] = np.inf
        else:
            most = max(limit * 0.98, float(now.compute.max()))
            value = np.where(after <= most, -self._shared(mine)[:, others], np.inf)
        i, j = np.divmod(_least(value.ravel(), CANDIDATES), len(others))
        return mine[i], others[j]

    def _shared(self, mine: Ints) -> Floats:
        """Bytes that each chunk needs of what the rank needs anyway without one of its own: [mine, chunks]."""
        rest = self.rest.take(mine, axis=1)
        used = np.flatnonzero(np.any(rest, axis=(0, 1)))
        needs = (self.tables.by_pair[..., used] > 0).astype(np.float32)
        rows = product(rest[..., used], needs.swapaxes(1, 2))
        row_bytes = self.tables.layers * self.tables.row_bytes
        return np.asarray(sums(row_bytes[..., None] * rows, axis=0, dtype=np.float64))

    def _after(self, slowest: int, own: Ints, other: Ints) -> Floats:
        """The slower of the two ranks after each swap, by work and what they receive."""
        ranks = np.concatenate([np.full(len(own), slowest), self.owners[other]])
        seconds = self._of_ranks(ranks, np.concatenate([own, other]), np.concatenate([other, own]))
        return np.asarray(seconds.reshape(2, -1).max(axis=0))

    def _of_ranks(self, ranks: Ints, leaves: Ints, comes: Ints) -> Floats:
        """Of ranks that get another chunk for one of their own."""
        tables, machine, each = self.tables, self.machine, np.arange(len(ranks))
        row_bytes, node = tables.row_bytes, machine.node[ranks]
        near = (machine.node[self.owners] == np.arange(machine.nodes)[:, None]).astype(np.float32)
        inside_node = near.take(node, axis=0)
        comes_near = inside_node[each, comes]
        inside_node[each[:, None], self.members[ranks]] = 0
        inside_node[each, comes], inside_node[each, leaves] = 0, comes_near
        rows = tables.by_pair.take(comes, axis=1)
        np.maximum(rows, self.rest.take(leaves, axis=1), out=rows)
        seconds = np.einsum("mij,ij->mi", rows, inside_node) * row_bytes / machine.nvlink
        if machine.nodes > 1:
            far = (1 - near).take(node, axis=0)
            far[each, comes], far[each, leaves] = 0, 1 - comes_near
            taken, by_each = self.most.take(ranks, axis=1), self.total.take(ranks, axis=1)
            np.maximum(taken, rows, out=taken)
            by_each += rows
            taken = share(taken, by_each)
            taken *= rows
            taken *= far
            seconds = np.maximum(seconds, sums(taken, axis=2) * row_bytes / machine.network)
        compute = self.now.of_masks[:, ranks] + tables.by_chunk[:, comes] - tables.by_chunk[:, leaves]
        return np.asarray(sums(tables.layers * np.maximum(compute, seconds), axis=0))


def _least(value: Floats, count: int) -> Ints:
    """Where the least finite values are, the least first, of equals the first."""
    last = min(count, len(value)) - 1
    limit = np.partition(value, last)[last]
    (found,) = ((value <= limit) & (value < np.inf)).nonzero()
    return np.asarray(found[value[found].argsort(kind="stable")[:count]])
