"""What an assignment of chunks to ranks costs: each rank's work, the rows that travel, the time of the slowest rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .grouping import Groups, Times
from .machine import Machine
from .needs import Needs
from .relays import Routes

Floats = NDArray[np.float64]
Owners = NDArray[np.int64]  # the rank of each chunk


@dataclass(frozen=True)
class Load:
    """One mask, and how many layers have it. `seconds`: of a pair of query and key on one GPU. `row_bytes`: of one row
    of K and V, all heads and sequences. `keys`: rows of K and V, from the first to before the last, that a launch of
    each chunk of q is given, [chunks, 2]. `heads`: parts of a row that can travel and be computed one after the other.
    `sequences`: of the first and the last row of each chunk of q, [2, chunks], where one launch has rows of many."""

    needs: Needs
    layers: int
    seconds: float
    row_bytes: int
    keys: NDArray[np.int64]
    heads: int = 1
    sequences: NDArray[np.int64] | None = None  # see `launched_together`

    @cached_property
    def key_chunks(self) -> NDArray[np.int64]:
        """The first and the last chunk that these are in: [2, q chunk]."""
        each = self.needs.rows[: self.needs.blocks].sum()
        return np.asarray((self.keys - [0, 1]).T // each)

    @cached_property
    def by_chunk(self) -> Floats:
        """Seconds of each chunk of queries."""
        return np.asarray(self.needs.work.sum(axis=1) * self.seconds)

    @cached_property
    def by_pair(self) -> NDArray[np.float32]:
        """Rows of each kv chunk that each q chunk needs: [q chunk, kv chunk]."""
        by_block = self.needs.needed.reshape(*self.needs.work.shape, self.needs.blocks)
        each = self.needs.rows[: self.needs.blocks]  # of every chunk
        return np.asarray(np.einsum("qkb,b->qk", by_block.astype(np.float32), each.astype(np.float32)))


Loads = tuple[Load, ...]


@dataclass(frozen=True)
class Figures:
    """Of one mask under one assignment. Seconds of each rank; `rows`: [receiver, sender], none for itself."""

    compute: Floats
    inside: Floats  # of a node: the larger of what is received and sent
    between: Floats  # nodes
    rows: NDArray[np.int64]

    @property
    def seconds(self) -> Floats:
        """Of each rank: rows travel while tiles that are there are computed."""
        return np.maximum(self.compute, np.maximum(self.inside, self.between))

    @property
    def balance(self) -> float:
        """The largest rank's work over the mean."""
        mean = float(self.compute.mean())
        return float(self.compute.max()) / mean if mean else 1.0

    @property
    def share_of_ideal(self) -> float:
        """The mean work over the slowest rank's time; 1: balanced, and all travel hidden."""
        slowest = float(self.seconds.max())
        return float(self.compute.mean()) / slowest if slowest else 1.0


def figures(load: Load, owners: Owners, machine: Machine) -> Figures:
    sent = routes(load.needs, owners, machine).rows(load.needs.rows, load.needs.blocks)
    same = machine.same_node
    inside, between = _busiest(np.where(same, sent, 0)), _busiest(np.where(same, 0, sent))
    return Figures(*_seconds(load, owners, machine, inside, between), sent)


class Pass(NamedTuple):
    """How the forward or the backward pass is computed: times; whether chunks that need no others' rows are launched
    before the rest, not where launches cost more than that hides; groups of heads; and seconds of a layer, with
    launches and what of travel isn't hidden."""

    times: Times
    local_first: bool
    groups: Groups
    exposed: float


@dataclass(frozen=True)
class Outcome:
    """Of one mask under one assignment: figures, and times with all chunks launched `together`, or those that need no
    others' rows `apart`, if there are any. Searches compare forward passes, so the backward pass waits until asked for.
    """

    figures: Figures
    heads: int
    together: Times
    apart: Times | None

    @cached_property
    def forward(self) -> Pass:
        return self._best(back=False)

    @cached_property
    def backward(self) -> Pass:
        return self._best(back=True)

    def _best(self, back: bool) -> Pass:
        together = Pass(self.together, self.apart is None, *self.together.best(self.heads, back=back))
        if self.apart is None:
            return together
        apart = Pass(self.apart, True, *self.apart.best(self.heads, back=back))
        return apart if apart.exposed <= together.exposed else together


def outcome(load: Load, owners: Owners, machine: Machine) -> Outcome:
    """What plans say."""
    found, runs = figures(load, owners, machine), own_runs(load, owners)
    together = _times(load, owners, machine, found, np.full_like(runs, OTHERS))
    apart = _times(load, owners, machine, found, runs) if (runs != OTHERS).any() else None
    return Outcome(found, load.heads, together, apart)


def _times(load: Load, owners: Owners, machine: Machine, found: Figures, runs: NDArray[np.int64]) -> Times:
    """`runs`: as `own_runs`, of chunks that are launched before others' rows have come; `OTHERS`: those that aren't."""
    ranks, local = machine.ranks, runs != OTHERS
    alone = np.bincount(owners, np.where(local, load.by_chunk, 0), ranks).astype(np.float64)
    order = np.argsort(owners, kind="stable")  # of each rank its chunks, as they follow each other
    rank, run, new = owners[order], runs[order], np.ones(len(order), np.bool_)
    early = run != OTHERS
    new[1:] = _gaps(load, order) | (rank[1:] != rank[:-1]) | (run[1:] != run[:-1])
    here, others = (np.bincount(rank, new & kind, ranks).astype(np.float64) for kind in (early, ~early))
    one, travel = machine.launch, np.maximum(found.inside, found.between)
    return Times(alone, found.compute - alone, travel, here * one, others * one, one)


def _gaps(load: Load, order: Owners) -> NDArray[np.bool_]:
    """Whether one launch can't have a chunk and the next of a rank: see `call_parts.neighbours`."""
    apart = np.asarray(order[1:] - order[:-1] != 1)
    if load.sequences is None:
        return apart
    first, last = load.sequences
    return np.asarray(apart & (last[order][:-1] == first[order][1:]))


OTHERS = -1  # in the place of a run


def own_runs(load: Load, owners: Owners) -> NDArray[np.int64]:
    """Of each chunk of q the run of neighbouring chunks of its rank that has all keys which a launch of it gets: such a
    launch reads the rank's own tensors. `OTHERS` where rows of others are among these keys."""
    run = np.cumsum(np.concatenate([[False], owners[1:] != owners[:-1]]))
    first, last = load.key_chunks
    found = np.where((run[first] == run[last]) & (owners[first] == owners), run[first], OTHERS)
    if (found == OTHERS).all() or (found != OTHERS).all():
        return found
    order = np.argsort(owners, kind="stable")
    rank = owners[order]
    apart = _gaps(load, order) | (rank[1:] != rank[:-1])
    found[order] = _joined(found[order].tolist(), rank.tolist(), apart.tolist())
    return found


def _joined(runs: list[int], rank: list[int], apart: list[bool]) -> list[int]:
    """Chunks on own rows beside others join these, so that one launch has both: all of a rank but most neighbours.
    `apart`: whether one launch can't have a chunk and the next."""
    ends = [at + 1 for at, cut in enumerate(apart) if cut or runs[at] != runs[at + 1]]
    pieces = list(pairwise([0, *ends, len(runs)]))
    largest = dict[int, tuple[int, int]]()  # of each rank, the piece on own rows
    for begin, end in pieces:
        before = largest.get(rank[begin])
        if runs[begin] != OTHERS and (before is None or end - begin > before[1] - before[0]):
            largest[rank[begin]] = begin, end
    joined = runs.copy()
    for begin, end in pieces:
        behind = begin > 0 and not apart[begin - 1] and runs[begin - 1] == OTHERS
        ahead = end < len(runs) and not apart[end - 1] and runs[end] == OTHERS
        if runs[begin] != OTHERS and (behind or ahead) and largest[rank[begin]] != (begin, end):
            joined[begin:end] = [OTHERS] * (end - begin)
    return joined


def _seconds(load: Load, owners: Owners, machine: Machine, inside: Any, between: Any) -> tuple[Floats, Floats, Floats]:
    compute = np.bincount(owners, load.by_chunk, machine.ranks).astype(np.float64)
    return compute, inside * load.row_bytes / machine.nvlink, between * load.row_bytes / machine.network


def routes(needs: Needs, owners: Owners, machine: Machine) -> Routes:
    """Who sends each block of rows to each rank."""
    return Routes.of(wants(needs, owners, machine.ranks), np.repeat(owners, needs.blocks), machine)


def _busiest(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each rank the larger of what it receives and what it sends."""
    return np.asarray(np.maximum(rows.sum(axis=1), rows.sum(axis=0)))


def wants(needs: Needs, owners: Owners, ranks: int) -> NDArray[np.bool_]:
    """Whether any chunk of a rank needs a block: [ranks, blocks]."""
    members = np.argsort(owners, kind="stable").reshape(ranks, -1)
    bits = np.bitwise_or.reduce(needs.bits[members], axis=1)
    return np.unpackbits(bits, axis=1, count=needs.needed.shape[1]).view(np.bool_)


def ideal_seconds(loads: Loads, ranks: int) -> float:
    return sum(load.layers * float(load.by_chunk.sum()) for load in loads) / ranks


def combined_work(loads: Loads) -> Floats:
    """Seconds of each chunk over all layers."""
    return np.asarray(sum(load.layers * load.by_chunk for load in loads))
