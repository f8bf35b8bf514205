"""Rows that travel under an assignment, estimated: searches compare thousands of assignments, so no block is counted.

What each node needs is looked at apart from others, since a swap of two chunks changes that of two nodes at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .machine import Machine

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.float32]  # counts: sums of them are exact, in any order

sums = np.add.reduce  # as `x.sum()` in half the time, where x is small
TINY = np.float32(1e-30)  # leaves counts as they are, and makes 0 / 0 a 0


class Travel(NamedTuple):
    """Of some masks, as if what the ranks of a node need of a chunk were nested, as that of windows and documents is:
    the node receives what that rank needs which needs most, and ranks receive shares of it in proportion.

    Rows of each rank, [masks, ranks]: `close`, of its node; `far`, of other nodes; `taken`, of these what it receives
    for its node. Rows of each chunk by the receivers' node, [masks, nodes, chunks]: `to_ranks`, of the chunk's own
    node, and `to_nodes`.
    """

    close: Rows
    far: Rows
    taken: Rows
    to_ranks: Rows
    to_nodes: Rows

    @classmethod
    def of(cls, wanted: Rows, members: Ints, owners: Ints, machine: Machine) -> Travel:
        """`wanted`: rows of each chunk that each rank needs, [masks, ranks, chunks]. `members`: each rank's chunks."""
        by_rank, by_node = np.zeros_like(wanted[..., 0]), np.zeros_like(wanted[:, : machine.nodes])
        none = cls(by_rank, by_rank, by_rank, by_node, by_node)
        return none.after(np.arange(machine.nodes), wanted, members, owners, machine)

    def after(self, nodes: Ints, wanted: Rows, members: Ints, owners: Ints, machine: Machine) -> Travel:
        """Where ranks of these nodes need something else, [masks, their ranks, chunks], or own other chunks."""
        close, far, taken, to_ranks, to_nodes = found = Travel(*(x.copy() for x in self))
        ranks, shape = machine.ranks_of(nodes), (len(wanted), len(nodes), -1, len(owners))
        if machine.nodes > 1:
            of_owner = machine.node[owners]
            rows = wanted * (of_owner == machine.node[ranks][:, None])
            others = wanted - rows
            far[:, ranks] = sums(others, axis=2)
            by_node = others.reshape(shape)
            once = np.maximum.reduce(by_node, axis=2, keepdims=True)
            to_nodes[:, nodes] = once[:, :, 0]
            by_node *= share(once, sums(by_node, axis=2, keepdims=True))
            taken[:, ranks] = sums(others, axis=2)
        else:
            rows = wanted.copy()
        rows[:, np.arange(len(ranks))[:, None], members[ranks]] = 0
        close[:, ranks], to_ranks[:, nodes] = sums(rows, axis=2), sums(rows.reshape(shape), axis=2)
        return found

    def busiest(self, sent_close: Rows, sent_far: Rows, members: Ints) -> tuple[Floats, Floats]:
        """Rows that each rank receives or sends, the larger of both: inside its node, and between nodes. `sent_close`
        and `sent_far`: what `sent` gives."""
        passed = self.far - self.taken  # as many as it hands on
        inside, between = (
            sums(rows.take(members, axis=1), axis=2, dtype=np.float64) for rows in (sent_close, sent_far)
        )
        return np.maximum(self.close, inside) + passed, np.maximum(self.taken, between)

    def sent(self) -> tuple[Rows, Rows]:
        """Rows of each chunk that go to other ranks of its node, and to other nodes: [masks, chunks]."""
        return sums(self.to_ranks, axis=1), sums(self.to_nodes, axis=1)


def share(once: Rows, by_each: Rows) -> Rows:
    """The part of what each rank needs that it takes for its node, which needs it `once`."""
    return np.asarray(once / (by_each + TINY))


def without_each(x: Rows) -> Rows:
    """The maximum over the axis before the last of all but each one, or 0; of the same shape. Of pairs of neighbours
    first: each of a pair has its neighbour, and all other pairs."""
    *outer, count, chunks = x.shape
    if count == 1:
        return np.zeros_like(x)
    if count % 2:
        x = np.concatenate([x, np.zeros((*outer, 1, chunks), x.dtype)], axis=-2)
    pairs = x.reshape(*outer, -1, 2, chunks)
    found = pairs[..., ::-1, :]
    if count > 2:
        others = without_each(np.maximum(pairs[..., 0, :], pairs[..., 1, :]))
        found = np.maximum(found, others[..., None, :])
    return found.reshape(x.shape)[..., :count, :]
