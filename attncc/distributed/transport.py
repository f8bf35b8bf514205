"""Rows of K and V from rank to rank by `all_to_all_single`, exactly those of the plan; their gradients back.

Both travel while the rank computes. On a GPU a collective that was begun goes on in a stream of NCCL's own; to wait for
it makes the current stream wait, not the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .plan_data import MaskPlan, PlanData, Received

Tensor = Any
Lists = tuple[tuple[Received, ...], ...]  # what each rank receives, by sender


class Fetched:
    """K and V in logical order, of full length: own rows, zeros where none are needed, and the others' after `wait`."""

    def __init__(self, k: Tensor, v: Tensor, arrive: Callable[[], None] | None = None) -> None:
        self.k, self.v, self._arrive = k, v, arrive

    @property
    def complete(self) -> bool:
        return self._arrive is None

    def wait(self) -> None:
        if self._arrive is not None:
            self._arrive()
        self._arrive = None


class Hop:
    """One exchange of rows: what this rank sends to whom and receives from whom, numbered as in whole sequences."""

    def __init__(self, receives: Lists, group: Any, device: Any) -> None:
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        coming = [_of_sender(receives, rank, sender) for sender in range(ranks)]
        going = [_of_sender(receives, receiver, rank) for receiver in range(ranks)]
        self.received, self.sent = ([len(rows) for rows in lists] for lists in (coming, going))
        self.coming, self.going = (_tensor(np.concatenate(rows), device) for rows in (coming, going))
        self.idle = not any(receives)  # all ranks know it, so none waits for another
        self.bytes_sent = self.bytes_received = 0
        self._group = group

    def begin(self, rows: Tensor) -> Callable[[], Tensor]:
        """Sends the rows of `going`. What it gives waits for those of `coming`, of as many columns."""
        return self._begun(rows, self.sent, self.received)

    def begin_back(self, rows: Tensor) -> Callable[[], Tensor]:
        """The other way round."""
        return self._begun(rows, self.received, self.sent)

    def _begun(self, rows: Tensor, sent: list[int], received: list[int]) -> Callable[[], Tensor]:
        out = torch.empty(sum(received), rows.shape[1], dtype=rows.dtype, device=rows.device)
        if self.idle:
            return lambda: out
        size = rows.shape[1] * rows.element_size()
        self.bytes_sent += sum(sent) * size
        self.bytes_received += sum(received) * size
        # As bytes, since gloo doesn't know all types.
        into, given = (x.contiguous().view(torch.uint8) for x in (out, rows))
        work = dist.all_to_all_single(into, given, received, sent, group=self._group, async_op=True)

        def finish() -> Tensor:
            work.wait()
            return out

        return finish


class Exchange:
    """The rows of one mask, as one rank of a group sends and receives them.

    `axis` is that of rows in k and v. `bytes_sent` and `bytes_received` count what went over the wire in both passes.
    Of other nodes each row comes once to each node, by the first hop; the second hands it on inside.
    """

    def __init__(self, plan: PlanData, mask: MaskPlan, group: Any, axis: int, device: Any) -> None:
        self._axis, self._rows = axis, plan.lengths.kv_rows
        self._rank = dist.get_rank(group)
        self._first, self._second = (Hop(lists, group, device) for lists in (mask.receives, mask.passed))
        self._own = _tensor(plan.rows(self._rank, of="kv"), device)
        place = torch.full((self._rows,), -1, dtype=torch.int64, device=device)
        place[self._own] = torch.arange(len(self._own), device=device)
        self._going = place[self._first.going]  # among own rows

    @property
    def bytes_sent(self) -> int:
        return self._first.bytes_sent + self._second.bytes_sent

    @property
    def bytes_received(self) -> int:
        return self._first.bytes_received + self._second.bytes_received

    def fetch(self, k: Tensor, v: Tensor) -> Fetched:
        """Begins to send own rows and to receive those of others."""
        finish = self._first.begin(self._packed(k, v, self._going))
        k_whole, v_whole = self._whole(k), self._whole(v)

        def arrive() -> None:
            self._put(k_whole, v_whole, self._first.coming, finish())
            if not self._second.idle:
                rows = self._second.begin(self._packed(k_whole, v_whole, self._second.going))()
                self._put(k_whole, v_whole, self._second.coming, rows)

        return Fetched(k_whole, v_whole, None if self._first.idle else arrive)

    def giving(self, dtype: Any) -> Giving:
        """Gradients of rows of K and V that are to go back to their owners, in `dtype`."""
        return Giving(self, dtype)

    def begin_back(self, dk: Tensor, dv: Tensor, dtype: Any) -> Callable[[], Tensor]:
        """Begins to send gradients of others' rows: to who handed the rows on, or if nobody did, to their owners."""
        hop = self._first if self._second.idle else self._second
        return hop.begin_back(self._packed(dk, dv, hop.coming).to(dtype))

    def finish_back(self, dk: Tensor, dv: Tensor, dtype: Any, finish: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """The gradients of own rows in fp32 or wider: those that each rank found, added in the order of ranks.

        What was handed on is added to `dk` and `dv` first, and goes back to the owners as one sum.
        """
        if not self._second.idle:
            places, parts = (x.split(self._second.sent) for x in (self._second.going, finish()))
            for place, part in zip(places, parts, strict=True):
                for x, rows in zip((dk, dv), self._split(part.to(dk.dtype), dk, dv), strict=True):
                    x.index_add_(self._axis, place, rows)  # a rank wants no row twice
            finish = self._first.begin_back(self._packed(dk, dv, self._first.coming).to(dtype))
        own = self._packed(dk, dv, self._own)
        total = torch.zeros_like(own)
        places, parts = (x.split(self._first.sent) for x in (self._going, finish()))
        for rank, (place, part) in enumerate(zip(places, parts, strict=True)):
            if rank == self._rank:
                total += own
            else:
                total[place] += part.to(own.dtype)
        dk_own, dv_own = self._split(total, dk, dv)
        return dk_own, dv_own

    def _packed(self, k: Tensor, v: Tensor, rows: Tensor) -> Tensor:
        """[rows, all else of k and then of v]"""
        return torch.cat([x.index_select(self._axis, rows).movedim(self._axis, 0).flatten(1) for x in (k, v)], dim=1)

    def _split(self, rows: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        """The inverse of `_packed`: rows of k and of v, all other axes as k and v have them."""
        shapes = [x.movedim(self._axis, 0).shape[1:] for x in (k, v)]
        parts = rows.split([shape.numel() for shape in shapes], dim=1)
        return [x.reshape(-1, *shape).movedim(0, self._axis) for x, shape in zip(parts, shapes, strict=True)]

    def _put(self, k: Tensor, v: Tensor, place: Tensor, rows: Tensor) -> None:
        for x, part in zip((k, v), self._split(rows, k, v), strict=True):
            x.index_copy_(self._axis, place, part)

    def _whole(self, x: Tensor) -> Tensor:
        axis = self._axis % x.dim()
        whole = torch.zeros((*x.shape[:axis], self._rows, *x.shape[axis + 1 :]), dtype=x.dtype, device=x.device)
        return whole.index_copy_(axis, self._own, x)


class Giving:
    """dK and dV on their way. `start` once the gradients of others' rows are whole, `finished` once all are."""

    def __init__(self, exchange: Exchange, dtype: Any) -> None:
        self._exchange, self._dtype = exchange, dtype
        self._finish: Callable[[], Tensor] | None = None

    def start(self, dk: Tensor, dv: Tensor) -> None:
        self._finish = self._exchange.begin_back(dk, dv, self._dtype)

    def finished(self, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of own rows. Changes what is given."""
        assert self._finish is not None, "nothing was sent"
        return self._exchange.finish_back(dk, dv, self._dtype, self._finish)


def _of_sender(receives: Lists, receiver: int, sender: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    runs = [rows for each in receives[receiver] if each.sender == sender for rows in each.rows]
    return np.concatenate([np.arange(begin, end) for begin, end in runs] or [np.zeros(0, np.int64)])


def _tensor(rows: np.ndarray[Any, np.dtype[np.int64]], device: Any) -> Tensor:
    return torch.from_numpy(rows.astype(np.int64)).to(device)
