"""Rows of K and V by copy engines, from the tensors of their owner right into place in the memory of who needs them.

Nothing is packed, and no kernel takes part, so that rows travel also while a kernel holds all multiprocessors.
Gradients go back the same way, into the inbox of their owner, who adds them up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .call_parts import Heads
from .engines import Prepared
from .moves import Move, moves
from .peer_memory import PeerMemory, Turn
from .plan_data import MaskPlan, PlanData, Rows
from .row_runs import MOST_RUNS, RowRuns, copy, others
from .transport import Exchange, Fetched, Pair, Parts, WayBack, of_sender, with_rows

Tensor = Any
_ALIGNMENT = 1024  # bytes: V begins at a multiple behind K
_MOST_FORMS = 256  # of calls, whose moves are kept
_numbers = itertools.count()


class _Form(NamedTuple):
    """What moves depend on, the addresses of what is sent apart."""

    place: int
    shapes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: Any
    heads: tuple[Heads, ...]


class _Whole(NamedTuple):
    """K and V of full length, and own rows of either in them, by run."""

    pair: Pair
    own: tuple[list[Tensor], list[Tensor]]


class _Alone(NamedTuple):
    """Own rows, and zeros: of k and v of these shapes, in this type."""

    of: tuple[Any, ...]
    whole: _Whole


class _Fetch(NamedTuple):
    """Of one form: what lies in the slot, and what goes to whom of which heads."""

    whole: _Whole
    sent: list[list[tuple[int, Prepared, Prepared]]]  # of each group of heads: receiver, moves of k, of v


class PeerExchange(Exchange):
    """As `Exchange`. All ranks are on one node, and reach each other's memory.

    Calls that a graph records go by the collective: what it replays would tell the same turn again.
    """

    def __init__(  # noqa: PLR0917  (as Exchange takes them, and memory)
        self, plan: PlanData, mask: MaskPlan, group: Any, axis: int, device: Any, memory: PeerMemory
    ) -> None:
        super().__init__(plan, mask, group, axis, device)
        self._memory, self.engine = memory, memory.engine
        self._number, ranks = next(_numbers), range(dist.get_world_size(group))
        self._forms: dict[_Form, Any] = {}
        self._has_early = bool(plan.local_rows(self.rank, mask).any())
        self._alone: _Alone | None = None
        coming = [run for rows in self.first.coming for run in rows.runs]
        self._unneeded = RowRuns(others([*self._own.runs, *coming], self._rows), device)
        # Where rows that go to each rank lie here and there, and how many rows of each owner each rank gets.
        numbers = self.first.numbers
        self._going = [
            [(numbers(run)[0], run) for run in of_sender(mask.receives, receiver, self.rank)] for receiver in ranks
        ]
        self._counts = [
            [sum(end - begin for begin, end in of_sender(mask.receives, finder, owner)) for finder in ranks]
            for owner in ranks
        ]
        self._senders = [rank for rank, rows in enumerate(self.first.coming) if rows.count]

    def fetch(self, k: Tensor, v: Tensor, heads: Sequence[Heads]) -> Fetched:
        """As `Exchange.fetch`. What is sent, and the memory of what comes, is free again after `Fetched.done`."""
        if self.first.idle or self.engine.is_recorded():
            return super().fetch(k, v, heads)
        k, v = (x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous() for x in (k, v))
        begins, size = self._layout(k, v)
        turn, engine = self._memory.rows.take(size), self.engine
        form = _Form(turn.place, (k.shape, v.shape), (k.stride(), v.stride()), k.dtype, tuple(heads))
        found = self._forms.get(form) or self._known(form, self._fetch(form, turn, k, v, begins))
        engine.follow()
        for number, of_group in enumerate(found.sent):
            for receiver, *both in of_group:
                turn.before_copy(receiver)
                for prepared, x in zip(both, (k, v), strict=True):
                    engine.copy(prepared, x.data_ptr())
                turn.copied(receiver, number)
        if not turn.is_mine((self._number, k.shape, v.shape, k.dtype)):
            for x in found.whole.pair:  # nobody writes there as long as these tensors have the slot
                self._unneeded.zero(x, self.axis)
        self._write_own(found.whole, k, v)
        early = self._own_alone(k, v) if self._has_early else None
        self.first.count(self._row_bytes(k) + self._row_bytes(v))

        def arrive(group: int) -> None:
            for sender in self._senders:
                turn.arrived(sender, group)

        whole_k, whole_v = found.whole.pair
        return Fetched(whole_k, whole_v, heads, arrive, done=turn.done, early=early, sent=(k, v))

    def _layout(self, k: Tensor, v: Tensor) -> tuple[tuple[int, int], int]:
        """Where K and V begin in a slot, and the bytes of both."""
        of_k, of_v = (self._rows * self._row_bytes(x) for x in (k, v))
        second = -(-of_k // _ALIGNMENT) * _ALIGNMENT
        return (0, second), second + of_v

    def _row_bytes(self, x: Tensor) -> int:
        return int(x.numel() // self._count * x.element_size())

    def _known(self, form: _Form, made: Any) -> Any:
        if len(self._forms) >= _MOST_FORMS:
            self._forms.clear()
        self._forms[form] = made
        return made

    def _fetch(self, form: _Form, turn: Turn, k: Tensor, v: Tensor, begins: tuple[int, int]) -> _Fetch:
        with torch.inference_mode(mode=False):
            memory = turn.own
            whole = [
                memory.narrow(0, begin, self._rows * self._row_bytes(x))
                .view(x.dtype)
                .view(with_rows(x, self.axis, self._rows))
                for x, begin in zip((k, v), begins, strict=True)
            ]
            own = self._with_own((whole[0], whole[1]))
        engine, sent = self.engine, []
        for some in form.heads:
            of_group = []
            for receiver, going in enumerate(self._going):
                if going:
                    at = turn.addresses[receiver]
                    both = [
                        engine.prepared(self._moves(x, into, some, going, at + begin))
                        for x, into, begin in zip((k, v), whole, begins, strict=True)
                    ]
                    of_group.append((receiver, both[0], both[1]))
            sent.append(of_group)
        return _Fetch(own, sent)

    def _moves(self, x: Tensor, whole: Tensor, heads: Heads, going: list[tuple[int, Rows]], at: int) -> list[Move]:
        """Of some heads and rows of own ones, to where they stand in one that lies as `whole` does, at this address."""
        found, size = list[Move](), x.element_size()
        shape, axis, head_axis = list(x.shape), self.axis % x.dim(), self._head_axis % x.dim()
        shape[head_axis] = heads[1] - heads[0]
        for first, (begin, end) in going:
            shape[axis] = end - begin
            source, target = (
                heads[0] * each.stride(head_axis) + row * each.stride(axis)
                for each, row in ((x, first), (whole, begin))
            )
            offsets = source * size, at + target * size
            found += moves(shape, x.stride(), whole.stride(), size, offsets)
        return found

    def _own_alone(self, k: Tensor, v: Tensor) -> Pair:
        """Own rows and zeros, for launches that begin before others' rows have come: tiles at the edge of what they
        need hold those. In the slot they are of an earlier call until then, perhaps of another type, and a NaN among
        them isn't 0 when multiplied by 0.
        """
        of = k.shape, v.shape, k.dtype
        if self._alone is None or self._alone.of != of:
            with torch.inference_mode(mode=False):
                self._alone = _Alone(of, self._with_own((self._whole(k), self._whole(v))))
        else:
            self._write_own(self._alone.whole, k, v)
        return self._alone.whole.pair

    def _with_own(self, pair: Pair) -> _Whole:
        own = [[x.narrow(self.axis, begin, end - begin) for begin, end in self._own.runs] for x in pair]
        return _Whole(pair, (own[0], own[1]))

    def _write_own(self, into: _Whole, k: Tensor, v: Tensor) -> None:
        for x, whole, own in zip((k, v), into.pair, into.own, strict=True):
            if len(own) > MOST_RUNS:
                self._own.write(whole, self.axis, x)
                continue
            sizes = [end - begin for begin, end in self._own.runs]
            for rows, part in zip(own, x.split(sizes, self.axis), strict=True):
                copy(rows, part)

    # ------------------------------------------------------------ gradients

    def _way_back(self, own: Pair, heads: Sequence[Heads], dtype: Any) -> WayBack:
        if self.first.idle or self.engine.is_recorded():
            return super()._way_back(own, heads, dtype)
        return _PeerWay(self, own, tuple(heads), dtype)

    def take_inbox(self, own: Pair, dtype: Any) -> Turn:
        most = max(sum(counts) for counts in self._counts)
        return self._memory.gradients.take(most * self._elements(own) * dtype.itemsize)

    def _elements(self, own: Pair) -> int:
        """Of a row of K and V."""
        return int(sum(x.numel() // self._count for x in own))

    def count_back(self, own: Pair, heads: Heads, dtype: Any) -> None:
        of_head = self._elements(own) // own[0].shape[self._head_axis]
        self.first.count(of_head * (heads[1] - heads[0]) * dtype.itemsize, back=True)

    def place_in_inbox(self, owner: int, finder: int, own: Pair, heads: Heads) -> int:
        """Where what one rank found for another begins, in elements: the first heads first, of each the first rank."""
        of_head = self._elements(own) // own[0].shape[self._head_axis]
        counts = self._counts[owner]
        return int(of_head) * (sum(counts) * heads[0] + sum(counts[:finder]) * (heads[1] - heads[0]))


class _PeerWay:
    """See `WayBack`."""

    def __init__(self, exchange: PeerExchange, own: Pair, heads: tuple[Heads, ...], dtype: Any) -> None:
        self._exchange, self._own, self._heads, self._dtype = exchange, own, heads, dtype
        self._turn = exchange.take_inbox(own, dtype)
        self._sent: list[Parts] = []  # until they were copied

    def begin(self, group: int, whole: Pair) -> Callable[[], list[Pair]]:
        exchange, turn, heads = self._exchange, self._turn, self._heads[group]
        hop, engine, rank = exchange.first, exchange.engine, exchange.rank
        parts = Parts(hop.coming, whole, exchange.axis, self._dtype)
        parts.fill(hop.coming, whole, exchange.axis)
        self._sent.append(parts)
        engine.follow()
        begin = 0
        for owner, size in enumerate(parts.sizes):
            if size:
                place = exchange.place_in_inbox(owner, rank, self._own, heads) * self._dtype.itemsize
                turn.before_copy(owner)
                found = moves([size], [1], [1], 1, (begin, turn.addresses[owner] + place))
                engine.copy(engine.prepared(list(found)), parts.flat.data_ptr())
                turn.copied(owner, group)
            begin += size
        exchange.count_back(self._own, heads, self._dtype)
        return lambda: self._arrived(group, whole)

    def _arrived(self, group: int, whole: Pair) -> list[Pair]:
        exchange, heads = self._exchange, self._heads[group]
        begin = exchange.place_in_inbox(exchange.rank, 0, self._own, heads) * self._dtype.itemsize
        for finder, rows in enumerate(exchange.first.going):
            if rows.count:
                self._turn.arrived(finder, group)
        own = exchange.of_heads(self._own, heads)
        memory = self._turn.own
        inbox = memory.narrow(0, begin, memory.shape[0] - begin)
        return Parts(exchange.first.going, own, exchange.axis, self._dtype, inbox).parts

    def done(self) -> None:
        self._turn.done()
        self._sent.clear()
