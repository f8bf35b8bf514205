"""Which rank owns which chunk: some ways to begin, each improved by swaps.

All ranks own equally many chunks, since all else of a model wants equal rows. Nothing here is random or depends on
time: each process that plans the same finds the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heapreplace

import numpy as np
from numpy.typing import NDArray

from .cost import Floats, Loads, Outcome, Owners, combined_work, ideal_seconds, outcome
from .machine import Machine
from .swaps import GOOD, Budget, improved
from .tables import Tables
from .travel import sums

STEPS = 4  # swaps for each rank, at most
ENOUGH = 1.005  # times the goal: no other beginning is improved then
CLOSE = 1.05  # times the least, if all travel is hidden: of these the one with least that isn't is taken
NEAR = 1.02  # times the goal: no swaps of runs are tried then
FEW = 12  # swaps of these, at most
SPARE = 1.01  # times the mean: work that `affinity` gives a rank


def sequential(chunks: int, ranks: int) -> Owners:
    """Runs of chunks: what windows and documents want."""
    return np.arange(chunks) // (chunks // ranks)


def zigzag(chunks: int, ranks: int) -> Owners | None:
    """A run and its mirror image: causal masks are balanced. None for an odd number of chunks a rank."""
    each = chunks // ranks
    if each % 2:
        return None
    half = np.repeat(np.arange(ranks), each // 2)
    return np.concatenate([half, half[::-1]])


def heap(work: NDArray[np.float64], ranks: int) -> Owners:
    """The largest chunk first, each to the rank that has least."""
    owners, each = np.zeros(len(work), np.int64), len(work) // ranks
    free = [(0.0, rank, 0) for rank in range(ranks)]  # work, who, and how many chunks
    for chunk in np.argsort(-work, kind="stable").tolist():
        load, rank, count = free[0]
        owners[chunk] = rank
        if count + 1 < each:
            heapreplace(free, (load + float(work[chunk]), rank, count + 1))
        else:
            heappop(free)
    return owners


def affinity(work: Floats, rows: NDArray[np.float32], machine: Machine) -> Owners:
    """The largest chunk first, each to the rank that needs most of its rows anyway, of those with work to spare.

    Between ranks that need equally much: to that whose node does. So a long document fills few ranks of few nodes.
    `work`: of each chunk, [groups, chunks]; `rows`: what it needs of each source, [groups, chunks, sources]. Each group
    of chunks goes to a machine of its own: [groups, chunks]. They take their steps together.
    """
    groups, chunks = work.shape
    each, most = chunks // machine.ranks, work.sum(axis=1, keepdims=True) / machine.ranks * SPARE
    order = np.argsort(-work, axis=1, kind="stable")
    work, rows = np.take_along_axis(work, order, axis=1), rows[np.arange(groups)[:, None], order]
    of_rank, of_node = (np.zeros((groups, some, rows.shape[2]), np.float32) for some in (machine.ranks, machine.nodes))
    load_of, count = np.zeros((groups, machine.ranks)), np.zeros((groups, machine.ranks), np.int64)
    owners = np.zeros((groups, chunks), np.int64)
    for step, span in enumerate(_spans(rows)):
        own, load = rows[:, step, None, span], load_of + work[:, step, None]
        free = load <= most
        value = np.where(free, sums(np.minimum(of_rank[..., span], own), axis=2), -1)
        best = value == np.maximum.reduce(value, axis=1, keepdims=True)
        if machine.nodes > 1 and np.count_nonzero(best) > groups:
            value = sums(np.minimum(of_node[..., span], own), axis=2)[:, machine.node]
            value = np.where(best & free, value, -1)
            best = value == np.maximum.reduce(value, axis=1, keepdims=True)
        for group, rank in enumerate(np.where(best, load_of, np.inf).argmin(axis=1).tolist()):
            owners[group, order[group, step]] = rank
            count[group, rank] += 1
            load_of[group, rank] = load[group, rank] if count[group, rank] < each else np.inf  # it has all it may
            tables = of_rank[group, rank, span], of_node[group, machine.node[rank], span]
            for needed in tables if machine.nodes > 1 else tables[:1]:
                np.maximum(needed, own[group, 0], out=needed)
    return owners


def _spans(rows: NDArray[np.float32]) -> list[slice]:
    """Of each chunk, of any group, the sources that aren't 0, and those between them."""
    used: NDArray[np.bool_] = np.any(rows > 0, axis=0)
    begin, end = used.argmax(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1)
    return [slice(*ends) for ends in zip(begin.tolist(), end.tolist(), strict=True)]


def by_nodes(tables: Tables, chunks: int, machine: Machine, budget: Budget) -> Iterator[tuple[str, Owners]]:
    """Runs of chunks to nodes, swapped until nodes are balanced; then the chunks of a node to its ranks, in two ways.

    Of what a node needs, each of its ranks receives a part: all at worst, and at best its share. Nodes are balanced as
    if it were half of the ranks that receive it together.
    """
    nodes, ranks = machine.nodes, machine.ranks // machine.nodes
    as_one = Machine(nodes, nodes, machine.flops, machine.nvlink, machine.network * max(ranks / 2, 1))
    of_node, _ = improved(tables.faster(ranks), sequential(chunks, nodes), as_one, STEPS * machine.ranks, budget)
    own = np.argsort(of_node, kind="stable").reshape(nodes, -1)  # chunks
    work, rows, first = tables.work[own], tables.bytes_by_pair[own], np.arange(nodes)[:, None] * ranks
    found = np.zeros((2, chunks), np.int64)
    found[0, own] = [heap(each, ranks) for each in work] + first
    found[1, own] = affinity(work, rows, Machine(ranks)) + first
    yield "nodes, then heap", found[0]
    yield "nodes, then affinity", found[1]


def beginnings(loads: Loads, chunks: int, machine: Machine) -> Iterator[tuple[str, Owners]]:
    """The names and the owners of chunks: runs of neighbours first, which take no search."""
    ranks = machine.ranks
    yield "sequential", sequential(chunks, ranks)
    mirrored = zigzag(chunks, ranks)
    if mirrored is not None:
        yield "zigzag", mirrored
    yield "heap", heap(combined_work(loads), ranks)


def searched(tables: Tables, chunks: int, machine: Machine, budget: Budget) -> Iterator[tuple[str, Owners]]:
    """More of them, those first whose swaps mostly end well."""
    if machine.nodes > 1:
        yield from by_nodes(tables, chunks, machine, budget)
    yield "affinity", affinity(tables.work[None], tables.bytes_by_pair[None], machine)[0]


@dataclass(frozen=True)
class Attempt:
    """One assignment that was tried. Of all layers: `seconds` if all travel is hidden, `exposed` with launches and what
    isn't, and bytes `sent`, of all ranks."""

    name: str
    swaps: int
    owners: Owners
    outcomes: tuple[Outcome, ...]  # of each load
    seconds: float
    exposed: float
    sent: int

    @classmethod
    def of(cls, name: str, swaps: int, owners: Owners, loads: Loads, machine: Machine) -> Attempt:
        outcomes = tuple(outcome(load, owners, machine) for load in loads)
        found = list(zip(loads, outcomes, strict=True))
        seconds = sum(load.layers * float(each.figures.seconds.max()) for load, each in found)
        exposed = sum(load.layers * each.forward.exposed for load, each in found)
        sent = sum(load.layers * load.row_bytes * int(each.figures.rows.sum()) for load, each in found)
        return cls(name, swaps, owners, outcomes, seconds, exposed, sent)


def attempts(loads: Loads, chunks: int, machine: Machine, budget: Budget) -> list[Attempt]:
    """The best first: least time, with what isn't hidden; of those within a percent of that, fewest bytes.

    Where runs of neighbours are as good as can be, nothing is searched; swaps end with the first that is. Few swaps of
    runs may be better even then: they leave few launches, and most rows where they are.
    """
    goal, found, known = GOOD * ideal_seconds(loads, machine.ranks), list[Attempt](), dict[bytes, Attempt]()

    def tried(name: str, swaps: int, owners: Owners) -> float:
        key = owners.tobytes()  # some beginnings are the same, for masks that are alike everywhere
        same = known.get(key)
        found.append(replace(same, name=name, swaps=swaps) if same else Attempt.of(name, swaps, owners, loads, machine))
        return known.setdefault(key, found[-1]).seconds

    plain = [tried(name, 0, owners) for name, owners in beginnings(loads, chunks, machine)]
    if min(plain[:-1]) > goal:  # of runs: heaps send more than they need to
        tables = Tables.of(loads)
        others = [tried(name, 0, owners) for name, owners in searched(tables, chunks, machine, budget)]
        begun = [*found[len(plain) :], *found[: len(plain)]]
        for attempt in begun if min(plain + others) > goal else ():
            owners, swaps = improved(tables, attempt.owners, machine, STEPS * machine.ranks, budget)
            if swaps and tried(attempt.name, swaps, owners) <= ENOUGH * goal:
                break
        swapped = any(item.swaps and item.name == found[0].name for item in found)
        if not swapped and min(item.exposed for item in found) > NEAR * goal:
            owners, swaps = improved(tables, found[0].owners, machine, FEW, budget)
            if swaps:
                tried(found[0].name, swaps, owners)
    limit = CLOSE * min(item.seconds for item in found)
    least = 1.01 * min(item.exposed for item in found if item.seconds <= limit)

    def order(item: Attempt) -> tuple[bool, bool, float]:
        late = item.exposed > least
        return item.seconds > limit, late, item.exposed if late else item.sent

    return sorted(found, key=order)
