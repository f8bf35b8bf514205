"""Between nodes a row travels once to each node that needs it: to one of the ranks that do, which hands it on inside.

Networks between nodes are slow, links inside them fast. What a rank receives stays the same; who sends it changes.
"""

from __future__ import annotations

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


def estimated(wanted: NDArray[np.float32], owners: Ints, machine: Machine) -> tuple[NDArray[np.float64], ...]:
    """What each rank receives and sends, the larger of both: inside its node, and between nodes.

    `wanted`: rows of each chunk that each rank needs, [ranks, chunks], as if those of a node were nested; those of its
    ranks that need rows of a chunk take shares in proportion.
    """
    node, each = machine.node, machine.ranks // machine.nodes
    near = node[owners] == node[:, None]
    close = np.where(near & (owners != np.arange(machine.ranks)[:, None]), wanted, 0)
    far = np.where(near, 0, wanted)
    by_node = far.reshape(machine.nodes, each, -1)
    of_node, all_of_node = by_node.max(axis=1), by_node.sum(axis=1)
    taken = (far * share(of_node, all_of_node)[node]).sum(axis=1)
    passed = far.sum(axis=1) - taken  # as many as it hands on
    sent = np.bincount(owners, of_node.sum(axis=0), machine.ranks)
    sent_close = np.bincount(owners, close.sum(axis=0), machine.ranks)
    return np.maximum(close.sum(axis=1), sent_close) + passed, np.maximum(taken, sent)


def share(once: NDArray[np.float32], by_each: NDArray[np.float32]) -> NDArray[np.float32]:
    """The part of what each rank needs that it takes for its node, which needs it `once`."""
    return np.asarray(once / np.maximum(by_each, 1), np.float32)
