"""Swaps of two chunks between the slowest rank and another, while they make all layers together faster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .cost import Floats, Load, Loads, Owners, combined_work, estimate, ideal_seconds, nested
from .machine import Machine
from .relays import share

GOOD = 1.005  # times the ideal: nothing is left to gain
CANDIDATES = 64  # swaps of a step that are looked at closely
TRIALS = 6  # of those, the best are made until one helps

Ints = NDArray[np.int64]


def improved(loads: Loads, owners: Owners, machine: Machine, steps: int) -> tuple[Owners, int]:
    """The assignment after at most so many swaps, and how many there were."""
    search = _Search(loads, owners.copy(), machine)
    made = 0
    while made < steps and search.step():
        made += 1
    return search.owners, made


class _Search:
    """The owners, and what each rank takes for all layers: work, and with rows that travel."""

    def __init__(self, loads: Loads, owners: Owners, machine: Machine) -> None:
        self.loads, self.owners, self.machine = loads, owners, machine
        self.work = combined_work(loads)
        self.goal = GOOD * ideal_seconds(loads, machine.ranks)
        self._measure()

    def _measure(self) -> None:
        self.wanted = [nested(load, self.owners, self.machine.ranks) for load in self.loads]
        pairs = list(zip(self.loads, self.wanted, strict=True))
        found = [(load, estimate(load, wanted, self.owners, self.machine)) for load, wanted in pairs]
        self.total = sum(load.layers * float(seconds.max()) for load, seconds in found)
        self.by_rank = np.asarray(sum(load.layers * seconds for load, seconds in found))
        self.compute = np.bincount(self.owners, self.work, self.machine.ranks)
        self.sent = np.asarray(sum(load.layers * self._sent(load, wanted) for load, wanted in pairs))
        self.sends = np.bincount(self.owners, self.sent, self.machine.ranks)

    def _sent(self, load: Load, wanted: NDArray[np.float32]) -> Floats:
        """Seconds in which each chunk's rows go to those that need them: once to each other node."""
        machine, chunk = self.machine, np.arange(len(self.owners))
        near = np.where(machine.same_node[:, self.owners], wanted, 0)
        near[self.owners, chunk] = 0
        of_node = wanted.reshape(machine.nodes, -1, len(chunk)).max(axis=1)
        of_node[machine.node[self.owners], chunk] = 0
        seconds = near.sum(axis=0) / machine.nvlink + of_node.sum(axis=0) / machine.network
        return np.asarray(seconds * load.row_bytes)

    def step(self) -> bool:
        """Makes the best of the swaps looked at; False if none helps."""
        if self.total <= self.goal:
            return False
        slowest = int(np.argmax(self.by_rank))
        own, other = self._candidates(slowest)
        after = self._after(slowest, own, other)
        best = np.argsort(after, kind="stable")[:TRIALS]
        helps = after[best] < self.by_rank[slowest] * (1 - 1e-6)
        return any(self._try(own[which], other[which]) for which in best[helps])

    def _try(self, i: int, j: int) -> bool:
        """Swaps two chunks, unless that makes another rank the slowest, and slower than before."""
        before = self.owners, self.total
        self.owners = self.owners.copy()
        self.owners[i], self.owners[j] = self.owners[j], self.owners[i]
        self._measure()
        if self.total <= before[1] * (1 + 1e-9):
            return True
        self.owners = before[0]
        self._measure()
        return False

    def _candidates(self, slowest: int) -> tuple[Ints, Ints]:
        """Chunks of the slowest rank and those of others that they may be swapped for, the most promising first."""
        mine, others = np.flatnonzero(self.owners == slowest), np.flatnonzero(self.owners != slowest)
        rank, limit = self.owners[others], self.by_rank[slowest]
        after = np.zeros((len(mine), len(others)))
        for of_chunk, of_rank in ((self.work, self.compute), (self.sent, self.sends)):
            change = of_chunk[others] - of_chunk[mine][:, None]
            after = np.maximum(after, np.maximum(of_rank[slowest] + change, of_rank[rank] - change))
        if max(self.compute[slowest], self.sends[slowest]) >= 0.999 * limit:
            near = self.machine.same_node[slowest][rank]
            value = np.where(after < limit, np.maximum(after, self.by_rank[rank]) * np.where(near, 1, 1.01), np.inf)
        else:
            most = max(limit * 0.98, float(self.compute.max()))
            value = np.where(after <= most, -self._shared(mine)[:, others], np.inf)
        taken = np.argsort(value, axis=None, kind="stable")[:CANDIDATES]
        i, j = np.unravel_index(taken[np.isfinite(value.ravel()[taken])], value.shape)
        return mine[i], others[j]

    def _shared(self, mine: Ints) -> Floats:
        """Bytes that each chunk needs of what the rank needs anyway without one of its own: [mine, chunks]."""
        total = np.zeros((len(mine), len(self.work)))
        for load in self.loads:
            rest = np.stack([load.by_pair[mine[mine != chunk]].max(axis=0, initial=0) for chunk in mine])
            total += load.layers * load.row_bytes * (rest @ (load.by_pair > 0).T.astype(np.float32))
        return total

    def _after(self, slowest: int, own: Ints, other: Ints) -> Floats:
        """The slower of the two ranks after each swap, by work and what they receive."""
        both = np.zeros((2, len(own)))
        of_rank = np.argsort(self.owners, kind="stable").reshape(self.machine.ranks, -1)
        for side, (leaves, comes) in enumerate(((own, other), (other, own))):
            ranks = np.full(len(own), slowest) if side == 0 else self.owners[other]
            members = of_rank[ranks]
            members = np.where(members == leaves[:, None], comes[:, None], members)
            both[side] = self._of_ranks(ranks, members, leaves, comes)
        return np.asarray(both.max(axis=0))

    def _of_ranks(self, ranks: Ints, members: Ints, leaves: Ints, comes: Ints) -> Floats:
        """Of ranks with these chunks, [candidates, chunks of a rank]."""
        each = np.arange(len(ranks))
        owner = np.repeat(self.owners[None], len(ranks), axis=0)
        owner[each, leaves] = owner[each, comes]
        owner[each, comes] = ranks
        node, total = self.machine.node, np.zeros(len(ranks))
        remote, near = owner != ranks[:, None], node[owner] == node[ranks][:, None]
        for load, wanted in zip(self.loads, self.wanted, strict=True):
            rows = load.by_pair[members].max(axis=1)
            inside = (rows * (remote & near)).sum(axis=1) * load.row_bytes / self.machine.nvlink
            most, sum_of_others = self._of_others(wanted, ranks)
            taken = rows * share(np.maximum(rows, most), rows + sum_of_others)
            between = (taken * ~near).sum(axis=1) * load.row_bytes / self.machine.network
            total += load.layers * np.maximum(load.by_chunk[members].sum(axis=1), np.maximum(inside, between))
        return total

    def _of_others(self, wanted: NDArray[np.float32], ranks: Ints) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Rows of each chunk that the other ranks of each rank's node need, the most and the sum: [ranks, chunks]."""
        each, most, total = self.machine.ranks // self.machine.nodes, np.zeros_like(wanted), np.zeros_like(wanted)
        for rank in np.unique(ranks) if self.machine.nodes > 1 else ():
            first = int(rank) // each * each
            others = wanted[[other for other in range(first, first + each) if other != rank]]
            most[rank], total[rank] = others.max(axis=0, initial=0), others.sum(axis=0)
        return most[ranks], total[ranks]
