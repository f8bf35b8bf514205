"""Parts of a rank's call: some rows of q, and some heads, as one launch has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .plan_data import MaskPlan, PlanData
from .row_runs import part, runs_of

Tensor = Any
Rows = NDArray[np.int64]
Heads = tuple[int, int]  # of k, from the first to before the second


class Options(NamedTuple):
    """What a call gives beside tensors that have gradients."""

    inputs: Mapping[str, Any]
    scale: float | None
    layout: str
    seed: Any

    @property
    def axis(self) -> int:
        """Of rows in q, k, v and out."""
        return -2 if self.layout == "bhsd" else -3


class Arriving(Protocol):
    """K and V of full length, which others' rows are on their way to, some heads after others. `own`: tensors of own
    rows alone; None where only the whole is there."""

    k: Tensor
    v: Tensor
    heads: tuple[Heads, ...]
    own: tuple[Tensor, Tensor] | None

    @property
    def complete(self) -> bool: ...

    def wait(self, group: int) -> None: ...


class Call:
    """A call of all heads of k, or of some."""

    def __init__(self, q: Tensor, arriving: Arriving, options: Options, heads: Heads | None = None) -> None:
        self._whole_q, self._arriving, self.options, self.heads = q, arriving, options, heads
        self.axis = options.axis
        self.head_axis = -5 - self.axis  # of heads in q, k, v and out
        self.kv_heads = int(arriving.k.shape[self.head_axis])  # all of them
        self.q, self.k, self.v = map(self.heads_of, (q, arriving.k, arriving.v))

    def of(self, heads: Heads) -> Call:
        """The same of some heads."""
        every = heads == (0, self.kv_heads)
        return self if every else Call(self._whole_q, self._arriving, self.options, heads)

    def keys_of(self, run: Run) -> tuple[Tensor, Tensor]:
        """The rows of K and V that a run is given: own ones out of own tensors, which are there from the beginning."""
        (k, v), begin, own = (self.k, self.v), run.keys[0], self._arriving.own
        if run.own_keys is not None and own is not None:
            (k, v), begin = map(self.heads_of, own), run.own_keys
        length = run.keys[1] - run.keys[0]
        return part(k, self.axis, begin, length), part(v, self.axis, begin, length)

    def heads_of(self, x: Tensor, axis: int | None = None) -> Tensor:
        """Of a tensor with all heads, of q or of k, on this axis."""
        if self.heads is None:
            return x
        axis = self.head_axis if axis is None else axis
        each = x.shape[axis] // self.kv_heads
        return x.narrow(axis, self.heads[0] * each, (self.heads[1] - self.heads[0]) * each)

    def new_lse(self) -> Tensor:
        q, wide = self._whole_q, torch.float64 if self._whole_q.dtype == torch.float64 else torch.float32
        return torch.empty((*q.shape[:-3], q.shape[self.head_axis], q.shape[self.axis]), dtype=wide, device=q.device)


@dataclass(frozen=True)
class Run:
    """Own rows that one launch computes: where they lie in local tensors, and what the call says of them.

    The launch is given the rows `keys` of K and V, counted over all sequences, and counts keys from the first of them.
    `own_keys`: where they begin among own rows, which have all of them; else None. With dropout a launch begins at a
    multiple of some rows in its sequence, `ahead` of them before the run.
    """

    begin: int
    end: int
    ahead: int
    row: int  # that the launch's first is among those of all ranks
    keys: tuple[int, int]  # from the first to before the last
    own_keys: int | None
    q_offset: Any
    starts: tuple[Tensor, Tensor] | tuple[None, None]  # cu_seqlens of q and k
    place: Tensor  # int32 [sequences, 2]: of the first query in its sequence, and how many the sequence has
    packed: bool

    @cached_property
    def length(self) -> int:
        return self.end - self.begin


class Cut(NamedTuple):
    """The rows of a run out of local tensors, `ahead` more before them."""

    run: Run
    axis: int

    def __call__(self, x: Tensor) -> Tensor:
        return self._ahead(self.inside(x), self.axis, 0)

    def of_lse(self, x: Tensor, ahead: float) -> Tensor:
        return self._ahead(self.inside_lse(x), -1, ahead)

    def inside(self, x: Tensor) -> Tensor:
        return part(x, self.axis, self.run.begin, self.run.length)

    def inside_lse(self, x: Tensor) -> Tensor:
        return part(x, -1, self.run.begin, self.run.length)

    def without_ahead(self, x: Tensor) -> Tensor:
        return part(x, self.axis, self.run.ahead, self.run.length)

    def lse_without_ahead(self, x: Tensor) -> Tensor:
        return part(x, -1, self.run.ahead, self.run.length)

    def _ahead(self, x: Tensor, axis: int, value: float) -> Tensor:
        if not self.run.ahead:
            return x
        axis %= x.dim()
        fill = x.new_full((*x.shape[:axis], self.run.ahead, *x.shape[axis + 1 :]), value)
        return torch.cat([fill, x], dim=axis)


class KeyRows(NamedTuple):
    """The rows of K and V that each launch of a pass is given: of those that wait for others' rows, and of those on own
    rows alone. `single`: on each rank at most one launch, for each group of heads, waits for others' rows."""

    others: tuple[tuple[int, int], ...]
    own: tuple[tuple[int, int], ...]
    single: bool


def neighbours(rows: Rows, kinds: NDArray[np.int64], sequences: Rows | None = None) -> Iterator[tuple[int, Rows]]:
    """Runs of own rows of one kind, which one launch computes, and where each begins in local tensors.

    They are neighbours in the sequence. Where the `sequences` of rows are given, a run has neighbours of each.
    """
    apart = np.diff(rows) != 1
    if sequences is not None:
        apart &= np.diff(sequences) == 0
    cuts = [0, *(np.flatnonzero(apart | (np.diff(kinds) != 0)) + 1).tolist(), len(rows)]
    yield from ((begin, rows[begin:end]) for begin, end in pairwise(cuts))


class Keys(NamedTuple):
    """The rows of K and V that a launch is given, and where they begin among own rows; None where some are others'."""

    rows: tuple[int, int]
    own: int | None


class Share(NamedTuple):
    """Rows of q that one launch computes, where they begin among own rows, and its keys."""

    begin: int
    rows: Rows
    keys: Keys


def shares(plan: PlanData, mask: MaskPlan, rank: int, *, together: bool, back: bool) -> Iterator[Share]:
    """Those of a rank in a pass. `together`: one launch may have rows of several sequences, see `launched_together`."""
    rows, local = plan.rows(rank), plan.local_rows(rank, mask, back=back)
    sequences = plan.sequences(rows) if together else None
    keys = np.repeat(np.asarray(mask.keys)[plan.chunks_of(rank)], len(rows) * plan.ranks // plan.chunks, axis=0)
    own_runs = np.asarray(runs_of(plan.rows(rank, of="kv")))
    places = np.cumsum([0, *(own_runs[:, 1] - own_runs[:, 0])])
    run = np.where(local, np.searchsorted(own_runs[:, 0], keys[:, 0], side="right") - 1, -1)  # that has a row's keys
    for begin, some in neighbours(rows, run, sequences):
        of_rows, which = keys[begin : begin + len(some)], run[begin]
        first, last = int(of_rows[:, 0].min()), int(of_rows[:, 1].max())
        own = None if which < 0 else int(places[which] + first - own_runs[which, 0])
        yield Share(begin, some, Keys((first, last), own))


def run_of(plan: PlanData, share: Share, device: Any, step: int) -> Run:
    """`step`: of its first sequence, a launch begins at a multiple of so many rows."""
    begin, rows, keys = share
    lengths, starts = plan.lengths, np.asarray(plan.lengths.q_starts)
    ahead = int(rows[0] - starts[np.searchsorted(starts, rows[0], side="right") - 1]) % step
    rows = np.concatenate([np.arange(rows[0] - ahead, rows[0]), rows])
    among = np.searchsorted(rows, starts)  # rows before each sequence
    has = among[1:] > among[:-1]
    begins = np.where(has, rows[np.minimum(among[:-1], len(rows) - 1)] - starts[:-1], 0)
    place = _int32(np.stack([begins, np.asarray(lengths.q)], axis=1), device)
    kv_starts, (first, last) = np.asarray(lengths.kv_starts), keys.rows
    missing = np.maximum(first - kv_starts[:-1], 0)  # keys of each sequence before those that the launch is given
    offset = np.asarray(lengths.kv) - np.asarray(lengths.q) + begins - missing
    local = begin, begin + len(rows) - ahead, ahead, int(rows[0]), keys.rows, keys.own
    if not lengths.packed:
        return Run(*local, int(offset[0]), (None, None), place, packed=False)
    packed = _int32(among, device), _int32(np.clip(kv_starts, first, last) - first, device)
    return Run(*local, _int32(offset, device), packed, place, packed=True)


def _int32(x: Rows, device: Any) -> Tensor:
    return torch.from_numpy(x.astype(np.int32)).to(device)
