"""Between nodes a row travels once to each node that needs it: to one of the ranks that do, which hands it on inside.

Networks between nodes are slow, links inside them fast. What a rank receives stays the same; who sends it changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .machine import Machine

Ints = NDArray[np.int64]

TURNS = 8  # of each rank of a node, at least, where there are blocks enough
MOST_TOGETHER = 16  # blocks of a turn


def senders(wanted: NDArray[np.bool_], owner: Ints, machine: Machine) -> Ints:
    """Who sends each block of rows to each rank, [ranks, blocks]; -1 where nobody does.

    `wanted`: [ranks, blocks]; `owner`: of each block. A block comes from its owner, if that is on the same node or the
    rank is the one that hands it on; else from that one. Those of a node that need a block take turns.
    """
    ranks = np.arange(machine.ranks)[:, None]
    found = np.where(wanted & (owner != ranks), owner, -1)
    for node in range(machine.nodes if machine.nodes > 1 else 0):
        members = np.flatnonzero(machine.node == node)
        far = np.flatnonzero(wanted[members].any(axis=0) & (machine.node[owner] != node))
        relay = members[_in_turn(wanted[members][:, far])]
        own = found[members][:, far]
        passed = (own >= 0) & (relay != members[:, None])
        found[members[:, None], far] = np.where(passed, relay, own)
    return found


def _in_turn(wanted: NDArray[np.bool_]) -> Ints:
    """Of those that want each block one: [members, blocks] to [blocks]. Each block is wanted by somebody.

    Neighbours mostly have the same, so that rows travel in long runs; each member has some turns.
    """
    members, blocks = wanted.shape
    together = min(max(blocks // (TURNS * members), 1), MOST_TOGETHER)
    turn = np.arange(blocks) // together % wanted.sum(axis=0)
    return np.asarray((wanted & (np.cumsum(wanted, axis=0) == turn + 1)).argmax(axis=0))


def rows_sent(senders: Ints, rows: Ints) -> Ints:
    """Rows by receiver and sender, [ranks, ranks]; `rows`: of each block."""
    ranks = len(senders)
    receiver, block = np.nonzero(senders >= 0)
    pair = receiver * ranks + senders[receiver, block]
    return np.bincount(pair, rows[block], ranks * ranks).astype(np.int64).reshape(ranks, ranks)


class Estimated(NamedTuple):
    """Rows that each rank receives or sends, the larger of both: inside its node, and between nodes. Rows of each chunk
    that go to other ranks of its node, and to other nodes."""

    inside: NDArray[np.float64]
    between: NDArray[np.float64]
    to_ranks: NDArray[np.float32]
    to_nodes: NDArray[np.float32]


def estimated(wanted: NDArray[np.float32], owners: Ints, machine: Machine) -> Estimated:
    """`wanted`: rows of each chunk that each rank needs, [ranks, chunks], as if those of a node were nested; those of
    its ranks that need rows of a chunk take shares in proportion.
    """
    ranks, chunks, node = machine.ranks, np.arange(len(owners)), machine.node
    others = wanted.copy()
    others[owners, chunks] = 0
    if machine.nodes == 1:
        to_ranks, to_nodes = others.sum(axis=0), np.zeros(len(owners), np.float32)
        inside = np.maximum(others.sum(axis=1), np.bincount(owners, to_ranks, ranks))
        return Estimated(inside, np.zeros(ranks), to_ranks, to_nodes)
    near = node[owners] == node[:, None]
    close, far = others * near, others * ~near
    by_node = far.reshape(machine.nodes, -1, len(owners))
    of_node, all_of_node = by_node.max(axis=1), by_node.sum(axis=1)
    taken = (far * share(of_node, all_of_node)[node]).sum(axis=1)
    passed = far.sum(axis=1) - taken  # as many as it hands on
    to_ranks, to_nodes = close.sum(axis=0), of_node.sum(axis=0)
    sent, sent_close = (np.bincount(owners, rows, ranks) for rows in (to_nodes, to_ranks))
    return Estimated(np.maximum(close.sum(axis=1), sent_close) + passed, np.maximum(taken, sent), to_ranks, to_nodes)


def share(once: NDArray[np.float32], by_each: NDArray[np.float32]) -> NDArray[np.float32]:
    """The part of what each rank needs that it takes for its node, which needs it `once`."""
    return np.asarray(once / np.maximum(by_each, 1), np.float32)
