"""Rows of K and V from rank to rank by `all_to_all_single`, exactly those of the plan; their gradients back.

Both travel while the rank computes, some key heads after others: the first are there, and are computed, while the next
are on their way. On a GPU a collective that was begun goes on in a stream of NCCL's own; to wait for it makes the
current stream wait, not the host. What is sent stays alive until then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist

from .call_parts import Heads, KeyRows
from .own_gradients import OwnGradients, Sums, assembled
from .plan_data import MaskPlan, PlanData, Received, Rows
from .row_runs import MOST_RUNS, RowRuns, among, copy, joined, others, part, runs_of

Tensor = Any
Lists = tuple[tuple[Received, ...], ...]  # what each rank receives, by sender
Pair = tuple[Tensor, Tensor]  # of k and of v
Fill = Callable[[list[Pair]], None]  # writes rows of k and v, by rank


class Fetched:
    """K and V in logical order, of full length: own rows, zeros where none are needed, and the others' after `wait`.

    Until then these may be anything, and so may rows that were not asked for. `own`: own rows alone, as they came.
    After `done` nothing reads any of them: their memory may be another call's then. As a context: what is on its way
    when an error ends the call still comes before `done`, since others send it, and would write into what is the next
    call's.
    """

    def __init__(
        self,
        k: Tensor,
        v: Tensor,
        heads: Sequence[Heads],
        arrive: Callable[[int], None] | None,
        *,
        done: Callable[[], None] | None = None,
        own: Pair | None = None,
    ) -> None:
        self.k, self.v, self.heads = k, v, tuple(heads)
        self.own = own  # copies read what is sent of them until `done`
        self._arrive, self._done = arrive, done
        self._there = 0  # groups of heads

    def kept(self) -> Pair:
        """The same for good."""
        return (self.k, self.v) if self._done is None else (self.k.clone(), self.v.clone())

    def done(self) -> None:
        """May be called again."""
        if self._done is not None:
            self._done()

    def __enter__(self) -> Fetched:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.wait(len(self.heads) - 1)
        self.done()

    @property
    def complete(self) -> bool:
        return self._arrive is None or self._there == len(self.heads)

    def wait(self, group: int) -> None:
        """For this group of heads, and those before it."""
        while not self.complete and self._there <= group:
            arrive, self._arrive = self._arrive, None  # what fails once isn't waited for again
            assert arrive is not None
            arrive(self._there)
            self._arrive = arrive
            self._there += 1


class Hop:
    """One exchange of rows: what this rank sends to whom and receives from whom.

    `numbers` gives those that it sends as they are numbered in the tensors that they are read from.
    """

    def __init__(self, receives: Lists, group: Any, device: Any, numbers: Callable[[Rows], Rows] = lambda x: x) -> None:
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        going = [[numbers(rows) for rows in of_sender(receives, other, rank)] for other in range(ranks)]
        self.coming = [RowRuns(of_sender(receives, rank, other), device) for other in range(ranks)]
        self.going = [RowRuns(runs, device) for runs in going]
        self._rows_sent, self._rows_received = (sum(rows.count for rows in x) for x in (self.going, self.coming))
        self.idle = not any(receives)  # all ranks know it, so none waits for another
        self.bytes_sent = self.bytes_received = 0
        self.numbers, self._group = numbers, group

    def count(self, row_bytes: int, *, back: bool = False) -> None:
        """What went over the wire: each row, of so many bytes; `back`: the other way round."""
        sent, received = row_bytes * self._rows_sent, row_bytes * self._rows_received
        self.bytes_sent += received if back else sent
        self.bytes_received += sent if back else received

    def begin(self, own: Pair, axis: int) -> Callable[[], list[Pair]]:
        """Sends the rows of `going`. What it gives waits for those of `coming`, by sender."""
        filled = partial(fill, rows=self.going, x=own, axis=axis)
        return self._begun(own, axis, self.going, self.coming, own[0].dtype, filled)

    def begin_back(self, like: Pair, axis: int, dtype: Any, filled: Fill) -> Callable[[], list[Pair]]:
        """The other way round: sends what `filled` writes. `like`: tensors of as many heads and columns."""
        return self._begun(like, axis, self.coming, self.going, dtype, filled)

    def _begun(  # noqa: PLR0917
        self,
        x: Pair,
        axis: int,
        going: list[RowRuns],
        coming: list[RowRuns],
        dtype: Any,
        filled: Fill,
    ) -> Callable[[], list[Pair]]:
        sent, received = (Parts(rows, x, axis, dtype) for rows in (going, coming))
        if self.idle:
            return lambda: received.parts
        filled(sent.parts)
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


class Parts:
    """Memory for some rows of k and v of each rank, one rank's behind the other's: first k's, then v's.

    `memory`: bytes that they are to lie in; new ones without it.
    """

    def __init__(self, rows: Sequence[RowRuns], x: Pair, axis: int, dtype: Any, memory: Tensor = None) -> None:
        shapes = [[with_rows(each, axis, some.count) for each in x] for some in rows]
        counts = [[math.prod(shape) for shape in of_rank] for of_rank in shapes]
        total = sum(map(sum, counts))
        if memory is None:
            self.flat = torch.empty(total, dtype=dtype, device=x[0].device)
        else:
            self.flat = memory.narrow(0, 0, total * dtype.itemsize).view(dtype)
        self.sizes = [sum(of_rank) * self.flat.element_size() for of_rank in counts]  # in bytes
        pieces = iter(self.flat.split([count for of_rank in counts for count in of_rank]))
        self.parts = [(next(pieces).view(k), next(pieces).view(v)) for k, v in shapes]


def fill(parts: Sequence[Pair], rows: Sequence[RowRuns], x: Pair, axis: int) -> None:
    """Copies these rows of x to where each rank's are."""
    for some, of_rank in zip(rows, parts, strict=True):
        if some.count:
            for from_, into in zip(x, of_rank, strict=True):
                some.read(from_, axis, into)


class Exchange:
    """The rows of one mask, as one rank of a group sends and receives them.

    `axis` is that of rows in k and v. `bytes_sent` and `bytes_received` count what went over the wire in both passes.
    Of other nodes each row comes once to each node, by the first hop; the second hands it on inside.
    """

    def __init__(self, plan: PlanData, mask: MaskPlan, group: Any, axis: int, device: Any) -> None:
        self.axis, self._head_axis, self.rows = axis, -5 - axis, plan.lengths.kv_rows
        self.rank = dist.get_rank(group)
        rows = plan.rows(self.rank, of="kv")
        self._count, own = len(rows), runs_of(rows)
        self.first, self._second = Hop(mask.receives, group, device, among(rows)), Hop(mask.passed, group, device)
        self._own, self._others = RowRuns(own, device), RowRuns(others(own, self.rows), device)
        self._found_by = [
            RowRuns(of_sender(mask.receives, other, self.rank), device) for other in range(dist.get_world_size(group))
        ]  # own rows that each rank finds gradients of, among those of all ranks
        self._device, self._kept = device, dict[Any, Any]()  # what depends on the keys of launches

    @property
    def bytes_sent(self) -> int:
        return self.first.bytes_sent + self._second.bytes_sent

    @property
    def bytes_received(self) -> int:
        return self.first.bytes_received + self._second.bytes_received

    def fetch(self, k: Tensor, v: Tensor, heads: Sequence[Heads], read: tuple[Rows, ...]) -> Fetched:
        """Begins to send own rows and to receive those of others, some heads after others. `read`: rows that launches
        read of what it gives, besides own rows alone."""
        finish = [self.first.begin(self.of_heads((k, v), some), self.axis) for some in heads]
        whole = self._whole(k, read), self._whole(v, read)

        def arrive(group: int) -> None:
            own = self.of_heads(whole, heads[group])
            self._put(own, self.first, finish[group]())
            if not self._second.idle:
                self._put(own, self._second, self._second.begin(own, self.axis)())

        return Fetched(*whole, heads, None if self.first.idle else arrive, own=(k, v))

    def giving(self, k: Tensor, v: Tensor, heads: Sequence[Heads], dtype: Any, keys: KeyRows) -> Giving:
        """Gradients of rows of K and V that are to go back to their owners, in `dtype`; k and v: own rows, or all;
        `keys`: those of the launches that find them."""
        shapes = (with_rows(x, self.axis, self._count) for x in (k, v))
        results = [torch.empty(shape, dtype=x.dtype, device=x.device) for shape, x in zip(shapes, (k, v), strict=True)]
        own = results[0], results[1]
        return Giving(self, self._way_back(own, heads, dtype), own, tuple(heads), dtype, keys)

    def _way_back(self, own: Pair, heads: Sequence[Heads], dtype: Any) -> WayBack:
        """To who handed the rows on, or if nobody did, to their owners."""
        return _Collective(self, dtype)

    @property
    def last(self) -> Hop:
        """By which rows came last: handed on, or if none are, from their owners."""
        return self._second if self.hands_on else self.first

    def fill_back(self, hop: Hop, keys: tuple[Rows, ...], found: Sequence[Pair], parts: Sequence[Pair]) -> None:
        """Writes what launches on these keys found of the rows that came by this hop, by rank as they go back."""
        terms = [[(begin, end, 0)] for begin, end in keys]
        sums = self._known((hop, keys), lambda: [Sums(rows.places, terms) for rows in hop.coming])
        for number, tensors in enumerate(_transposed(found)):
            whole = None
            for some, rows, into in zip(sums, hop.coming, parts, strict=True):
                if len(some) <= MOST_RUNS:
                    some.write(into[number], self.axis, tensors)
                    continue
                if whole is None:
                    whole = assembled(tensors, keys, self.rows, self.axis, into[number])
                rows.read(whole, self.axis, into[number])

    def assembled(self, keys: tuple[Rows, ...], found: Sequence[Pair], like: Pair) -> Pair:
        """What launches on these keys found, of all rows, in fp32 or wider."""
        pairs = zip(_transposed(found), like, strict=True)
        dk, dv = (assembled(tensors, keys, self.rows, self.axis, x) for tensors, x in pairs)
        return _widened((dk, dv))

    def finish_back(
        self, results: Pair, found: Sequence[Pair], keys: tuple[Rows, ...], dtype: Any, finish: Callable[[], list[Pair]]
    ) -> None:
        """Writes the gradients of own rows: what this rank found of these keys, and what others did, in their order.

        What was handed on is added to the first of `found`, and goes back to the owners as one sum.
        """
        if self.hands_on:
            self._add(found[0], self._second, finish())
            filled = partial(self.fill_back, self.first, keys[:1], found[:1])
            finish = self.first.begin_back(results, self.axis, dtype, filled)
        own = self._known(keys, lambda: OwnGradients(self._own, self._found_by, self.rows, keys, self._device))
        for result, of_keys, parts in zip(results, _transposed(found), _transposed(finish()), strict=True):
            own.write(result, self.axis, of_keys, parts)

    def _known(self, key: Any, made: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = made()
        return self._kept[key]

    @property
    def hands_on(self) -> bool:
        """Whether rows are handed on inside nodes."""
        return not self._second.idle

    def own_places(self, read: tuple[Rows, ...]) -> list[tuple[int, int, int]]:
        """Of these rows the own ones, and where each run of them begins among own rows."""
        return [
            (max(first, begin), min(last, end), place + max(begin - first, 0))
            for begin, end in joined(read)
            for first, last, place in self._own.places
            if max(first, begin) < min(last, end)
        ]

    def of_heads(self, x: Pair, heads: Heads) -> Pair:
        k, v = (each.narrow(self._head_axis, heads[0], heads[1] - heads[0]) for each in x)
        return k, v

    def _put(self, whole: Pair, hop: Hop, parts: list[Pair]) -> None:
        for rows, of_rank in zip(hop.coming, parts, strict=True):
            for x, own in zip(whole, of_rank, strict=True):
                rows.write(x, self.axis, own)

    def _add(self, total: Pair, hop: Hop, parts: list[Pair]) -> None:
        for rows, of_rank in zip(hop.going, parts, strict=True):
            for x, own in zip(total, of_rank, strict=True):
                rows.add(x, self.axis, own)

    def _whole(self, x: Tensor, read: tuple[Rows, ...]) -> Tensor:
        if not read:
            return x
        whole = torch.empty(with_rows(x, self.axis, self.rows), dtype=x.dtype, device=x.device)
        self._others.zero(whole, self.axis)  # tiles at the edge of what is needed hold them, and 0 · v must be 0
        places = self._known(("read", read), lambda: self.own_places(read))
        if len(places) > MOST_RUNS:
            self._own.write(whole, self.axis, x)
            return whole
        for begin, end, place in places:
            copy(part(whole, self.axis, begin, end - begin), part(x, self.axis, place, end - begin))
        return whole


class WayBack(Protocol):
    """Of gradients of others' rows, to these."""

    def begin(self, group: int, like: Pair, keys: tuple[Rows, ...], found: Sequence[Pair]) -> Callable[[], list[Pair]]:
        """Sends those of a group of heads, sums of what launches on these keys found; `like` has as many heads. What it
        gives waits for those of own rows, by who found them."""
        ...

    def done(self) -> None:
        """All were waited for."""
        ...


class _Collective:
    def __init__(self, exchange: Exchange, dtype: Any) -> None:
        self._exchange, self._dtype = exchange, dtype

    def begin(self, group: int, like: Pair, keys: tuple[Rows, ...], found: Sequence[Pair]) -> Callable[[], list[Pair]]:
        exchange, hop = self._exchange, self._exchange.last
        filled = partial(exchange.fill_back, hop, keys, found)
        return hop.begin_back(like, exchange.axis, self._dtype, filled)

    def done(self) -> None: ...


class Giving:
    """dK and dV on their way, some heads after others, from launches on these `keys`.

    `start` once the launches are done that found gradients of others' rows; `add` what own rows get after that; then
    `finished`, `done`.
    """

    def __init__(  # noqa: PLR0917
        self, exchange: Exchange, way: WayBack, results: Pair, heads: tuple[Heads, ...], dtype: Any, keys: KeyRows
    ) -> None:
        self._exchange, self._way, self._results, self._heads = exchange, way, results, heads
        self._dtype, self._keys = dtype, keys
        self._found: dict[int, tuple[list[Pair], tuple[Rows, ...], Callable[[], list[Pair]]]] = {}

    def start(self, group: int, found: Sequence[Pair]) -> None:
        exchange, keys, like = self._exchange, self._keys.others, self._of_heads(group)
        if exchange.hands_on:
            found, keys = [exchange.assembled(keys, found, like)], ((0, exchange.rows),)
        self._found[group] = list(found), keys, self._way.begin(group, like, keys, found)

    def add(self, group: int, dk: Tensor, dv: Tensor) -> None:
        self._found[group][0].append((dk, dv))

    def finished(self) -> Pair:
        """The gradients of own rows, in the type of k and v."""
        for group in range(len(self._heads)):
            found, keys, finish = self._found[group]
            keys += self._keys.own
            self._exchange.finish_back(self._of_heads(group), found, keys, self._dtype, finish)
        return self._results

    def _of_heads(self, group: int) -> Pair:
        return self._exchange.of_heads(self._results, self._heads[group])

    def done(self) -> None:
        """Nothing of it is read from here on."""
        self._way.done()
        self._found.clear()  # not before: copies may read what launches found


def _transposed(pairs: Sequence[Pair]) -> tuple[list[Tensor], list[Tensor]]:
    """Those of k, and those of v."""
    return [k for k, _ in pairs], [v for _, v in pairs]


def _widened(x: Pair) -> Pair:
    """The same in fp32 or wider."""
    wide = torch.promote_types(x[0].dtype, torch.float32)
    return x[0].to(wide), x[1].to(wide)


def with_rows(x: Tensor, axis: int, rows: int) -> tuple[int, ...]:
    axis %= x.dim()
    return (*x.shape[:axis], rows, *x.shape[axis + 1 :])


def of_sender(receives: Lists, receiver: int, sender: int) -> list[Rows]:
    return [rows for each in receives[receiver] if each.sender == sender for rows in each.rows]
