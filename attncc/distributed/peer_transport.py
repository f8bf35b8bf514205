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
from .row_runs import RowRuns, others
from .transport import Exchange, Fetched, Pair, Parts, WayBack, of_sender, with_rows

Tensor = Any
_ALIGNMENT = 1024  # bytes: V begins at a multiple behind K
_MOST_FORMS = 256  # of calls, whose moves are kept
_numbers = itertools.count()


class _Fetch(NamedTuple):
    """In one slot: K and V of full length, what goes to whom of which heads, and own rows that go there."""

    whole: Pair
    sent: list[list[tuple[int, Prepared, Prepared]]]  # of each group of heads: receiver, moves of k, of v
    own: list[tuple[Prepared, Prepared]]  # of each group of heads: moves of k, of v; empty if no launch reads any


class _Form:
    """What moves of K and V depend on, the addresses of what is sent apart; by slot what goes there."""

    def __init__(self, k: Tensor, v: Tensor, rows: int, row_bytes: tuple[int, int], user: Any) -> None:
        self.row_bytes, self.user = sum(row_bytes), user
        of_k, of_v = (rows * size for size in row_bytes)
        second = -(-of_k // _ALIGNMENT) * _ALIGNMENT
        self.begins, self.size = (0, second), second + of_v  # where K and V begin in a slot, and the bytes of both
        self.slots: dict[int, _Fetch] = {}


class _Group(NamedTuple):
    """Gradients of some heads: where in the outbox and in whose memory those of others' rows are to be, by owner, and
    those that come, by finder."""

    parts: list[Pair]
    sent: list[tuple[int, Prepared]]  # owner, moves out of the outbox
    found: list[Pair]
    targets: list[int]  # of each owner, an address
    straight: dict[Any, list[tuple[int, Prepared, Prepared]]]  # owner, moves out of what a launch found: of dk, of dv


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
        self._forms: dict[Any, _Form] = {}
        self._ways: dict[Any, list[_Group]] = {}
        coming = [run for rows in self.first.coming for run in rows.runs]
        self._unneeded = RowRuns(others([*self._own.runs, *coming], self.rows), device)
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

    def fetch(self, k: Tensor, v: Tensor, heads: Sequence[Heads], read: tuple[Rows, ...]) -> Fetched:
        """As `Exchange.fetch`. What is sent, and the memory of what comes, is free again after `Fetched.done`."""
        if self.first.idle or self.engine.is_recorded():
            return super().fetch(k, v, heads, read)
        k, v = (x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous() for x in (k, v))
        form, engine, local = self._form(k, v, heads, read), self.engine, self._memory.local
        turn = self._memory.rows.take(form.size)
        found = form.slots.get(turn.place)
        if found is None:
            found = form.slots[turn.place] = self._fetch(form, turn, k, v, heads, read)
        engine.follow()
        for number, of_group in enumerate(found.sent):
            for receiver, of_k, of_v in of_group:
                turn.before_copy(receiver)
                engine.copy(of_k, k.data_ptr())
                engine.copy(of_v, v.data_ptr())
                turn.copied(receiver, number, engine)
        if not turn.is_mine(form.user):
            for x in found.whole:  # nobody writes there as long as these tensors have the slot
                self._unneeded.zero(x, self.axis)
        if found.own:
            local.follow()
        for number, (of_k, of_v) in enumerate(found.own):
            local.copy(of_k, k.data_ptr())
            local.copy(of_v, v.data_ptr())
            turn.copied(self.rank, number, local)
        self.first.count(form.row_bytes)
        senders = [*self._senders, self.rank] if found.own else self._senders

        def arrive(group: int) -> None:
            for sender in senders:
                turn.arrived(sender, group)

        return Fetched(*found.whole, heads, arrive, done=turn.done, own=(k, v))

    def _form(self, k: Tensor, v: Tensor, heads: Sequence[Heads], read: tuple[Rows, ...]) -> _Form:
        key = k.shape, v.shape, k.stride(), v.stride(), k.dtype, tuple(heads), read
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            user, row_bytes = (self._number, k.shape, v.shape, k.dtype), (self._row_bytes(k), self._row_bytes(v))
            form = self._forms[key] = _Form(k, v, self.rows, row_bytes, user)
        return form

    def _row_bytes(self, x: Tensor) -> int:
        return int(x.numel() // self._count * x.element_size())

    def _fetch(  # noqa: PLR0917
        self, form: _Form, turn: Turn, k: Tensor, v: Tensor, heads: Sequence[Heads], read: tuple[Rows, ...]
    ) -> _Fetch:
        with torch.inference_mode(mode=False):
            memory = turn.own
            whole = [
                memory.narrow(0, begin, self.rows * self._row_bytes(x))
                .view(x.dtype)
                .view(with_rows(x, self.axis, self.rows))
                for x, begin in zip((k, v), form.begins, strict=True)
            ]
        engine, sent, kept = self.engine, [], []
        own = [(place, (begin, end)) for begin, end, place in self.own_places(read)]

        def prepared(some: Heads, going: list[tuple[int, Rows]], at: int) -> tuple[Prepared, Prepared]:
            of_k, of_v = (
                engine.prepared(self._moves(x, into, some, going, at + begin))
                for x, into, begin in zip((k, v), whole, form.begins, strict=True)
            )
            return of_k, of_v

        for some in heads:
            receivers = [(receiver, going) for receiver, going in enumerate(self._going) if going]
            sent.append([(each, *prepared(some, going, turn.addresses[each])) for each, going in receivers])
            if own:
                kept.append(prepared(some, own, turn.addresses[self.rank]))
        return _Fetch((whole[0], whole[1]), sent, kept)

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

    # ------------------------------------------------------------ gradients

    def _way_back(self, own: Pair, heads: Sequence[Heads], dtype: Any) -> WayBack:
        if self.first.idle or self.engine.is_recorded():
            return super()._way_back(own, heads, dtype)
        return _PeerWay(self, own, tuple(heads), dtype)

    def way(self, own: Pair, heads: tuple[Heads, ...], dtype: Any) -> tuple[Turn, list[_Group]]:
        """The next turn of the inbox, and by groups of heads what goes and comes."""
        item, elements = dtype.itemsize, self._elements(own)
        most = max(sum(counts) for counts in self._counts)
        turn = self._memory.gradients.take(most * elements * item)
        outbox = self._memory.outbox(sum(rows.count for rows in self.first.coming) * elements * item)
        key = turn.place, outbox.data_ptr(), own[0].shape, own[1].shape, heads, dtype
        found = self._ways.get(key)
        if found is None:
            if len(self._ways) >= _MOST_FORMS:
                self._ways.clear()
            with torch.inference_mode(mode=False):
                found = self._ways[key] = self._groups(turn, outbox, own, heads, dtype)
        return turn, found

    def _groups(self, turn: Turn, outbox: Tensor, own: Pair, heads: tuple[Heads, ...], dtype: Any) -> list[_Group]:
        found, begin, at = list[_Group](), 0, outbox.data_ptr()
        for some in heads:
            of_heads, sent, targets = self.of_heads(own, some), [], list[int]()
            parts = Parts(self.first.coming, of_heads, self.axis, dtype, outbox.narrow(0, begin, len(outbox) - begin))
            for owner, size in enumerate(parts.sizes):
                target = turn.addresses[owner] + self._place(owner, self.rank, own, some) * dtype.itemsize
                targets.append(target)
                if size:
                    sent.append((owner, self.engine.prepared(list(moves([size], [1], [1], 1, (at + begin, target))))))
                begin += size
            place = self._place(self.rank, 0, own, some) * dtype.itemsize
            inbox = turn.own.narrow(0, place, len(turn.own) - place)
            comes = Parts(self.first.going, of_heads, self.axis, dtype, inbox)
            found.append(_Group(parts.parts, sent, comes.parts, targets, {}))
        return found

    def straight(self, group: _Group, keys: Rows, found: Pair) -> list[tuple[int, Prepared, Prepared]]:
        """Moves that send what one launch on these keys found, out of its own tensors, by owner."""
        key = keys, *(x.stride() for x in found)
        if key not in group.straight:
            group.straight[key] = [
                (owner, *self._back(group.parts[owner], target, keys[0], found, rows))
                for owner, (rows, target) in enumerate(zip(self.first.coming, group.targets, strict=True))
                if rows.count
            ]
        return group.straight[key]

    def found_in(self, keys: Rows) -> bool:
        """Whether these have all rows that came from others."""
        return all(keys[0] <= begin and end <= keys[1] for rows in self.first.coming for begin, end in rows.runs)

    def _back(self, parts: Pair, target: int, first: int, found: Pair, rows: RowRuns) -> list[Prepared]:
        """Of dk and of dv, from the row `first` on, to where they lie at this address as `parts` do."""
        prepared = []
        for x, into in zip(found, parts, strict=True):
            size, axis, shape, some = x.element_size(), self.axis % x.dim(), list(x.shape), list[Move]()
            for begin, end, place in rows.places:
                shape[axis] = end - begin
                offsets = (begin - first) * x.stride(axis) * size, target + place * into.stride(axis) * size
                some += moves(shape, x.stride(), into.stride(), size, offsets)
            prepared.append(self.engine.prepared(some))
            target += into.numel() * size
        return prepared

    def _elements(self, own: Pair) -> int:
        """Of a row of K and V."""
        return int(sum(x.numel() // self._count for x in own))

    def count_back(self, own: Pair, heads: Heads, dtype: Any) -> None:
        of_head = self._elements(own) // own[0].shape[self._head_axis]
        self.first.count(of_head * (heads[1] - heads[0]) * dtype.itemsize, back=True)

    def _place(self, owner: int, finder: int, own: Pair, heads: Heads) -> int:
        """Where what one rank found for another begins, in elements: the first heads first, of each the first rank."""
        of_head = self._elements(own) // own[0].shape[self._head_axis]
        counts = self._counts[owner]
        return int(of_head) * (sum(counts) * heads[0] + sum(counts[:finder]) * (heads[1] - heads[0]))


class _PeerWay:
    """See `WayBack`."""

    def __init__(self, exchange: PeerExchange, own: Pair, heads: tuple[Heads, ...], dtype: Any) -> None:
        self._exchange, self._own, self._heads, self._dtype = exchange, own, heads, dtype
        self._turn, self._groups = exchange.way(own, heads, dtype)

    def begin(self, group: int, like: Pair, keys: tuple[Rows, ...], found: Sequence[Pair]) -> Callable[[], list[Pair]]:
        """What a single launch found goes straight out of its tensors. No kernel is needed then, which would wait for
        the launches beside it."""
        exchange, turn, engine = self._exchange, self._turn, self._exchange.engine
        of_group = self._groups[group]
        if len(keys) == 1 and found[0][0].dtype == found[0][1].dtype == self._dtype and exchange.found_in(keys[0]):
            dk, dv = (x.data_ptr() for x in found[0])
            copies = [
                (owner, [(of_k, dk), (of_v, dv)])
                for owner, of_k, of_v in exchange.straight(of_group, keys[0], found[0])
            ]
        else:
            exchange.fill_back(exchange.first, keys, found, of_group.parts)
            copies = [(owner, [(prepared, 0)]) for owner, prepared in of_group.sent]
        engine.follow()
        for owner, some in copies:
            turn.before_copy(owner)
            for prepared, source in some:
                engine.copy(prepared, source)
            turn.copied(owner, group, engine)
        exchange.count_back(self._own, self._heads[group], self._dtype)
        return lambda: self._arrived(group)

    def _arrived(self, group: int) -> list[Pair]:
        for finder, rows in enumerate(self._exchange.first.going):
            if rows.count:
                self._turn.arrived(finder, group)
        return self._groups[group].found

    def done(self) -> None:
        self._turn.done()
