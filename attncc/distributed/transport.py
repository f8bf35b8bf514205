"""Rows of K and V from rank to rank by `all_to_all_single`, exactly those of the plan; their gradients back.

Both travel while the rank computes, some key heads after others: the first are there, and are computed, while the next
are on their way. On a GPU a collective that was begun goes on in a stream of NCCL's own; to wait for it makes the
current stream wait, not the host. What is sent stays alive until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .call_parts import Heads
from .plan_data import MaskPlan, PlanData, Received, Rows
from .row_runs import RowRuns, others, runs_of

Tensor = Any
Lists = tuple[tuple[Received, ...], ...]  # what each rank receives, by sender
Pair = tuple[Tensor, Tensor]  # of k and of v


class Fetched:
    """K and V in logical order, of full length: own rows, zeros where none are needed, and the others' after `wait`."""

    def __init__(self, k: Tensor, v: Tensor, heads: Sequence[Heads], arrive: Callable[[int], None] | None) -> None:
        self.k, self.v, self.heads = k, v, tuple(heads)
        self._arrive = arrive
        self._there = 0  # groups of heads

    @property
    def complete(self) -> bool:
        return self._arrive is None or self._there == len(self.heads)

    def wait(self, group: int) -> None:
        """For this group of heads, and those before it."""
        while not self.complete and self._there <= group:
            assert self._arrive is not None
            self._arrive(self._there)
            self._there += 1


class Hop:
    """One exchange of rows: what this rank sends to whom and receives from whom.

    `numbers` gives those that it sends as they are numbered in the tensors that they are read from.
    """

    def __init__(self, receives: Lists, group: Any, device: Any, numbers: Callable[[Rows], Rows] = lambda x: x) -> None:
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        going = [[numbers(rows) for rows in _of_sender(receives, other, rank)] for other in range(ranks)]
        self.coming = [RowRuns(_of_sender(receives, rank, other), device) for other in range(ranks)]
        self.going = [RowRuns(runs, device) for runs in going]
        self.idle = not any(receives)  # all ranks know it, so none waits for another
        self.bytes_sent = self.bytes_received = 0
        self._group = group

    def begin(self, own: Pair, axis: int) -> Callable[[], list[Pair]]:
        """Sends the rows of `going`. What it gives waits for those of `coming`, by sender."""
        return self._begun(own, axis, self.going, self.coming, own[0].dtype)

    def begin_back(self, whole: Pair, axis: int, dtype: Any) -> Callable[[], list[Pair]]:
        """The other way round."""
        return self._begun(whole, axis, self.coming, self.going, dtype)

    def _begun(
        self, x: Pair, axis: int, going: list[RowRuns], coming: list[RowRuns], dtype: Any
    ) -> Callable[[], list[Pair]]:
        sent, received = (_Parts(rows, x, axis, dtype) for rows in (going, coming))
        if self.idle:
            return lambda: received.parts
        for rows, parts in zip(going, sent.parts, strict=True):
            for from_, into in zip(x, parts, strict=True):
                rows.read(from_, axis, into)
        self.bytes_sent += sum(sent.sizes)
        self.bytes_received += sum(received.sizes)
        # As bytes, since gloo doesn't know all types.
        into, given = received.flat.view(torch.uint8), sent.flat.view(torch.uint8)
        work = dist.all_to_all_single(into, given, received.sizes, sent.sizes, group=self._group, async_op=True)

        def finish() -> list[Pair]:
            work.wait()
            del sent.flat, sent.parts  # not before: NCCL reads them
            return received.parts

        return finish


class _Parts:
    """Memory for some rows of k and v of each rank, one rank's behind the other's: first k's, then v's."""

    def __init__(self, rows: Sequence[RowRuns], x: Pair, axis: int, dtype: Any) -> None:
        shapes = [[_with_rows(each, axis, some.count) for each in x] for some in rows]
        counts = [[int(np.prod(shape)) for shape in of_rank] for of_rank in shapes]
        self.flat = torch.empty(sum(map(sum, counts)), dtype=dtype, device=x[0].device)
        self.sizes = [sum(of_rank) * self.flat.element_size() for of_rank in counts]  # in bytes
        pieces = iter(self.flat.split([count for of_rank in counts for count in of_rank]))
        self.parts = [(next(pieces).view(k), next(pieces).view(v)) for k, v in shapes]


class Exchange:
    """The rows of one mask, as one rank of a group sends and receives them.

    `axis` is that of rows in k and v. `bytes_sent` and `bytes_received` count what went over the wire in both passes.
    Of other nodes each row comes once to each node, by the first hop; the second hands it on inside.
    """

    def __init__(self, plan: PlanData, mask: MaskPlan, group: Any, axis: int, device: Any) -> None:
        self._axis, self._head_axis, self._rows = axis, -5 - axis, plan.lengths.kv_rows
        self._rank = dist.get_rank(group)
        rows = plan.rows(self._rank, of="kv")
        self._count = len(rows)

        def among_own(run: Rows) -> Rows:
            place = int(np.searchsorted(rows, run[0]))
            return place, place + run[1] - run[0]

        self._first, self._second = Hop(mask.receives, group, device, among_own), Hop(mask.passed, group, device)
        own = runs_of(rows)
        self._own, self._others = RowRuns(own, device), RowRuns(others(own, self._rows), device)

    @property
    def bytes_sent(self) -> int:
        return self._first.bytes_sent + self._second.bytes_sent

    @property
    def bytes_received(self) -> int:
        return self._first.bytes_received + self._second.bytes_received

    def fetch(self, k: Tensor, v: Tensor, heads: Sequence[Heads]) -> Fetched:
        """Begins to send own rows and to receive those of others, some heads after others."""
        finish = [self._first.begin(self.of_heads((k, v), some), self._axis) for some in heads]
        whole = self._whole(k), self._whole(v)

        def arrive(group: int) -> None:
            own = self.of_heads(whole, heads[group])
            self._put(own, self._first, finish[group]())
            if not self._second.idle:
                self._put(own, self._second, self._second.begin(own, self._axis)())

        return Fetched(*whole, heads, None if self._first.idle else arrive)

    def giving(self, k: Tensor, v: Tensor, heads: Sequence[Heads], dtype: Any) -> Giving:
        """Gradients of rows of K and V that are to go back to their owners, in `dtype`; k and v: own rows, or all."""
        shapes = (_with_rows(x, self._axis, self._count) for x in (k, v))
        results = [torch.empty(shape, dtype=x.dtype, device=x.device) for shape, x in zip(shapes, (k, v), strict=True)]
        return Giving(self, (results[0], results[1]), tuple(heads), dtype)

    def begin_back(self, whole: Pair, dtype: Any) -> Callable[[], list[Pair]]:
        """Begins to send gradients of others' rows: to who handed the rows on, or if nobody did, to their owners."""
        hop = self._first if self._second.idle else self._second
        return hop.begin_back(whole, self._axis, dtype)

    def finish_back(self, found: Sequence[Pair], dtype: Any, finish: Callable[[], list[Pair]]) -> Pair:
        """The gradients of own rows in fp32 or wider: what this rank found, and what others did, in their order.

        What was handed on is added to the first of `found`, and goes back to the owners as one sum.
        """
        whole, *more = found
        if not self._second.idle:
            whole = _widened(whole)
            self._add(whole, self._second, finish())
            finish = self._first.begin_back(whole, self._axis, dtype)
        own = _widened(whole, lambda x: _with_rows(x, self._axis, self._count))
        for total, x in zip(own, whole, strict=True):
            self._own.read(x, self._axis, total)
        for pair in more:
            for total, x in zip(own, pair, strict=True):
                self._own.add_to(total, x, self._axis)
        self._add(own, self._first, finish())
        return own

    def of_heads(self, x: Pair, heads: Heads) -> Pair:
        k, v = (each.narrow(self._head_axis, heads[0], heads[1] - heads[0]) for each in x)
        return k, v

    def _put(self, whole: Pair, hop: Hop, parts: list[Pair]) -> None:
        for rows, part in zip(hop.coming, parts, strict=True):
            for x, own in zip(whole, part, strict=True):
                rows.write(x, self._axis, own)

    def _add(self, total: Pair, hop: Hop, parts: list[Pair]) -> None:
        for rows, part in zip(hop.going, parts, strict=True):
            for x, own in zip(total, part, strict=True):
                rows.add(x, self._axis, own)

    def _whole(self, x: Tensor) -> Tensor:
        whole = torch.empty(_with_rows(x, self._axis, self._rows), dtype=x.dtype, device=x.device)
        self._others.zero(whole, self._axis)  # tiles at the edge of what is needed hold them, and 0 · v must be 0
        self._own.write(whole, self._axis, x)
        return whole


class Giving:
    """dK and dV on their way, some heads after others.

    `start` once the gradients of others' rows are whole; `add` what own rows get after that; then `finished`.
    """

    def __init__(self, exchange: Exchange, results: Pair, heads: tuple[Heads, ...], dtype: Any) -> None:
        self._exchange, self._results, self._heads, self._dtype = exchange, results, heads, dtype
        self._found: dict[int, tuple[list[Pair], Callable[[], list[Pair]]]] = {}

    def start(self, group: int, dk: Tensor, dv: Tensor) -> None:
        self._found[group] = [(dk, dv)], self._exchange.begin_back((dk, dv), self._dtype)

    def add(self, group: int, dk: Tensor, dv: Tensor) -> None:
        self._found[group][0].append((dk, dv))

    def finished(self) -> Pair:
        """The gradients of own rows, in the type of k and v."""
        for group, heads in enumerate(self._heads):
            found, finish = self._found.pop(group)
            own = self._exchange.finish_back(found, self._dtype, finish)
            for result, x in zip(self._exchange.of_heads(self._results, heads), own, strict=True):
                result.copy_(x)
        return self._results


def _widened(x: Pair, shape: Callable[[Tensor], Any] | None = None) -> Pair:
    """In fp32 or wider: the same values, or memory of another shape."""
    wide = torch.promote_types(x[0].dtype, torch.float32)
    if shape is None:
        return x[0].to(wide), x[1].to(wide)
    k, v = (torch.empty(shape(each), dtype=wide, device=each.device) for each in x)
    return k, v


def _with_rows(x: Tensor, axis: int, rows: int) -> tuple[int, ...]:
    axis %= x.dim()
    return (*x.shape[:axis], rows, *x.shape[axis + 1 :])


def _of_sender(receives: Lists, receiver: int, sender: int) -> list[Rows]:
    return [rows for each in receives[receiver] if each.sender == sender for rows in each.rows]
