"""Between nodes a row travels once to each node that needs it: to one of the ranks that do, which hands it on inside.

Networks between nodes are slow, links inside them fast. What a rank receives stays the same; who sends it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .machine import Machine
from .products import product

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TURNS = 8  # of each rank of a node, at least, where there are blocks enough
MOST_TOGETHER = 16  # blocks of a turn


class Runs(NamedTuple):
    """Runs of blocks that stand together, of one owner, and come to a rank from one sender: a number each for a run.
    In the order of receivers, of these of senders, of these of blocks. `last` is in the run."""

    receiver: Ints
    sender: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True)
class Routes:
    """Who sends each block of rows to whom: its owner, or the rank of the receiver's node that hands it on.

    `owner`: of each block. `direct`: whether a rank has a block from its owner, [ranks, blocks]. `far`: the blocks that
    some node has from another, or all where these are most; of them `passed`: whether a rank has it from another one of
    its node, and `relays`: whether it is that one, [ranks, far blocks].
    """

    machine: Machine
    owner: Ints
    direct: Flags
    far: Ints | slice
    passed: Flags
    relays: Flags

    @classmethod
    def of(cls, wanted: Flags, owner: Ints, machine: Machine) -> Routes:
        """`wanted`: whether a rank needs a block, [ranks, blocks]. A block goes to another node once, if any rank of it
        needs it. Those that do take turns to receive it and to hand it on."""
        direct = wanted.copy()
        direct[owner, np.arange(len(owner))] = False
        by_node = wanted.reshape(machine.nodes, -1, len(owner))
        comes: Flags = np.any(by_node, axis=1)
        comes[machine.node[owner], np.arange(len(owner))] = False
        some = np.flatnonzero(comes.any(axis=0))
        far = some if 2 * some.size < len(owner) else slice(None)
        asked = by_node[..., far] & comes[:, None, far]
        relays = _in_turn(asked, comes[:, far])
        passed, relays = (x.reshape(machine.ranks, -1) for x in (asked & ~relays, relays))
        direct[:, far] &= ~passed
        return cls(machine, owner, direct, far, passed, relays)

    def rows(self, rows: Ints, blocks: int) -> Ints:
        """That each rank receives of each, [receiver, sender]. `rows`: of each block; `blocks` of them are a chunk, as
        all chunks are, and have one owner."""
        ranks, nodes = self.machine.ranks, self.machine.nodes
        exact: Any = np.float32 if rows.sum() < 1 << 24 else np.float64
        order = np.argsort(self.owner[::blocks], kind="stable")  # ranks own equally many
        by_sender = self.direct.reshape(ranks, -1, blocks).take(order, axis=1).reshape(ranks, ranks, -1)
        of_blocks = np.tile(rows[:blocks], len(order) // ranks)
        found = np.einsum("rsb,b->rs", by_sender.astype(exact), of_blocks.astype(exact))
        if self.passed.size:
            node, size = np.arange(nodes), ranks // nodes
            takes, gives = (x.reshape(nodes, size, -1).astype(exact) for x in (self.passed, self.relays))
            handed = product(takes * rows[self.far].astype(exact), gives.transpose(0, 2, 1))
            found.reshape(nodes, size, nodes, size)[node, :, node] += handed
        return np.asarray(found, np.int64)

    def runs(self) -> tuple[Runs, Runs]:
        """What ranks have from owners, and what is handed on to them."""
        owner, nodes = self.owner, self.machine.nodes
        far = np.arange(len(owner))[self.far]
        new = np.r_[True, owner[1:] != owner[:-1]]
        direct = _runs(self.direct, new[None], lambda _, block: owner[block])
        if not far.size:
            return direct, Runs(*(np.zeros(0, np.int64) for _ in Runs._fields))
        relays, size = self.relays.reshape(nodes, -1, len(far)), self.machine.ranks // nodes
        new = np.repeat((new[far] | (np.diff(far, prepend=-2) != 1))[None], nodes, axis=0)
        new[:, 1:] |= (relays[..., 1:] != relays[..., :-1]).any(axis=1)
        passed = _runs(self.passed, new, lambda node, block: size * node + relays[node, :, block].argmax(axis=1))
        return direct, passed._replace(first=far[passed.first], last=far[passed.last])


def _runs(flags: Flags, new: Flags, sender: Callable[[Ints, Ints], Ints]) -> Runs:
    """`flags`: [ranks, blocks]. `sender`: of a block in a node; `new`: whether it or the owner isn't that of the block
    before, [nodes, blocks]."""
    by_node = flags.reshape(len(new), -1, flags.shape[1])
    begins, ends = by_node.copy(), by_node.copy()
    begins[..., 1:] &= ~by_node[..., :-1] | new[:, None, 1:]
    ends[..., :-1] &= ~by_node[..., 1:] | new[:, None, 1:]
    ranks, blocks = flags.shape
    receiver, first = np.divmod(np.flatnonzero(begins), blocks)  # a third of what np.nonzero takes
    last = np.flatnonzero(ends) % blocks
    number = sender(receiver // by_node.shape[1], first)
    pair = (receiver * ranks + number).astype(np.min_scalar_type(ranks**2))  # 16 bits are sorted by radix
    order = np.argsort(pair, kind="stable")
    return Runs(receiver[order], number[order], first[order], last[order])


def _in_turn(asked: Flags, comes: Flags) -> Flags:
    """Of those of a node that need a block one, [nodes, members, blocks]. `asked`: who do; `comes`: whether it comes
    from another node, [nodes, blocks].

    Neighbours mostly have the same, so that rows travel in long runs; each member has some turns.
    """
    members = asked.shape[1]
    together = np.clip(comes.sum(axis=1, dtype=np.int32) // (TURNS * members), 1, MOST_TOGETHER)
    place = np.zeros(asked.shape, np.int16)  # among those that need it
    for member in range(1, members):
        np.add(place[:, member - 1], asked[:, member - 1], out=place[:, member])
    count = np.maximum(place[:, -1] + asked[:, -1], 1)
    turn = (np.cumsum(comes, axis=1, dtype=np.int32) - 1) // together[:, None] % count
    return np.asarray(asked & (place == turn[:, None].astype(np.int16)))
