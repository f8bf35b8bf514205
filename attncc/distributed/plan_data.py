"""A plan as data: the owners of chunks, the rows that each rank receives, and the figures of each mask."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..ir import Variant
from ..problem.refusal import refused
from .lengths import Lengths
from .machine import Machine

Rows = tuple[int, int]  # from the first to before the second, counted over all sequences


class Received(NamedTuple):
    """Rows of K and V that a rank receives from one other. (A plan has thousands: no dataclass, which takes longer.)"""

    sender: int
    rows: tuple[Rows, ...]

    @property
    def total(self) -> int:
        return sum(end - begin for begin, end in self.rows)


@dataclass(frozen=True)
class MaskPlan:
    """One mask of the plan.

    `key` tells its variant, consts and all, from others of its name. `inputs` has the name and a digest of each input
    that its keep lines read. `receives`: of each rank, by sender. Figures are of one layer, a number a rank: seconds of
    computing, bytes received from its node and from others, bytes sent. `slowest` is in seconds, all travel hidden.
    `groups` and `groups_back`: heads of k that travel together, one group after the other, in the two passes. With them
    the forward pass takes `exposed` seconds, with one group `at_once`.
    """

    variant: str
    key: str
    inputs: tuple[tuple[str, str], ...]
    layers: int
    receives: tuple[tuple[Received, ...], ...]
    passed: tuple[tuple[Received, ...], ...]
    local: tuple[bool, ...]  # of each chunk of q: its rank's own tensors have its `keys`, one after the other
    keys: tuple[Rows, ...]  # of each chunk of q, from the first to before the last that it needs
    local_first: bool  # these are launched before rows of others have come
    local_first_back: bool  # in the backward pass
    compute: tuple[float, ...]
    from_node: tuple[int, ...]
    from_others: tuple[int, ...]
    sent: tuple[int, ...]
    slowest: float
    balance: float
    share_of_ideal: float
    groups: tuple[int, ...]
    groups_back: tuple[int, ...]
    exposed: float
    at_once: float

    def rows_received(self, rank: int) -> int:
        return sum(self.rows_by_sender(rank).values())

    def rows_by_sender(self, rank: int) -> dict[int, int]:
        """How many rows a rank receives from whom."""
        found = dict[int, int]()
        for each in (*self.receives[rank], *self.passed[rank]):
            found[each.sender] = found.get(each.sender, 0) + each.total
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class Tried:
    """An assignment that lost, or the one that was taken: seconds, with what isn't hidden, and bytes of all layers."""

    name: str
    swaps: int
    seconds: float
    bytes_sent: int


@dataclass(frozen=True)
class PlanData:
    """Chunk c holds rows c·q_rows/chunks … of q, and the same share of k; `owners[c]` is its rank.

    Ranks have their chunks in logical order. Equal plans have equal `digest`s; processes compare these.
    """

    lengths: Lengths
    machine: Machine
    owners: tuple[int, ...]
    masks: tuple[MaskPlan, ...]
    row_bytes: int  # of a row of K and V, all heads and sequences
    tried: tuple[Tried, ...]  # the first was taken

    @property
    def ranks(self) -> int:
        return self.machine.ranks

    @property
    def chunks(self) -> int:
        return len(self.owners)

    @property
    def seconds(self) -> float:
        """Of all layers, forward."""
        return sum(mask.layers * mask.slowest for mask in self.masks)

    def chunks_of(self, rank: int) -> NDArray[np.int64]:
        return np.flatnonzero(np.asarray(self.owners) == rank)

    def rows(self, rank: int, *, of: str = "q") -> NDArray[np.int64]:
        """The rows that a rank owns, of "q" or "kv", counted over all sequences: in the order of its local tensors."""
        total = self.lengths.q_rows if of == "q" else self.lengths.kv_rows
        each = total // self.chunks
        return np.asarray((self.chunks_of(rank)[:, None] * each + np.arange(each)).ravel())

    def local_rows(self, rank: int, mask: MaskPlan, *, back: bool = False) -> NDArray[np.bool_]:
        """Of each own row of q whether it is computed before rows of other ranks have come, in either pass."""
        first = mask.local_first_back if back else mask.local_first
        local = np.asarray(mask.local) & (first or not any(mask.receives))
        return np.repeat(local[self.chunks_of(rank)], self.lengths.q_rows // self.chunks)

    def positions(self, rank: int) -> NDArray[np.int64]:
        """Of each own row of q, `q_pos`: its place among the keys of its sequence."""
        rows, starts = self.rows(rank), np.asarray(self.lengths.q_starts)
        sequence = self.sequences(rows)
        ahead = np.asarray(self.lengths.kv) - np.asarray(self.lengths.q)
        return np.asarray(rows - starts[sequence] + ahead[sequence])

    def sequences(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """That rows of q are in."""
        return np.asarray(np.searchsorted(np.asarray(self.lengths.q_starts), rows, side="right") - 1)

    def mask(self, variant: Variant) -> MaskPlan:
        """The plan of a variant's mask. AttnccError A722 if it has none."""
        for mask in self.masks:
            if mask.key == key_of(variant):
                return mask
        known = ", ".join(mask.variant for mask in self.masks)
        what = f"the plan has no mask of {variant.name} with these consts"
        raise refused("A722", what, expected=known, came=f"{variant.name} {dict(variant.consts) or ''}".strip())


def key_of(variant: Variant) -> str:
    """Differs for variants that differ in anything."""
    return hashlib.sha256(variant.show_lowered().encode()).hexdigest()[:16]


def digest_of(value: Any) -> str:
    """Of an input's values, in whatever width they come."""
    array = np.asarray(value)
    wide = array.astype(np.bool_ if array.dtype == np.bool_ else np.int64 if array.dtype.kind in "iu" else np.float64)
    return hashlib.sha256(repr(wide.shape).encode() + wide.tobytes()).hexdigest()[:16]
