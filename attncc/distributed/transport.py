"""Rows of K and V from rank to rank by one `all_to_all_single`, exactly those of the plan; their gradients back.

Both travel while the rank computes. On a GPU a collective that was begun goes on in a stream of NCCL's own; to wait for
it makes the current stream wait, not the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .plan_data import MaskPlan, PlanData

Tensor = Any


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


class Exchange:
    """The rows of one mask, as one rank of a group sends and receives them.

    `axis` is that of rows in k and v. `bytes_sent` and `bytes_received` count what went over the wire in both passes.
    """

    def __init__(self, plan: PlanData, mask: MaskPlan, group: Any, axis: int, device: Any) -> None:
        self._group, self._axis = group, axis
        self._rank, self._ranks = dist.get_rank(group), plan.ranks
        self._rows = plan.lengths.kv_rows
        self.own = _tensor(plan.rows(self._rank, of="kv"), device)
        place = np.full(self._rows, -1, np.int64)
        place[plan.rows(self._rank, of="kv")] = np.arange(len(self.own))
        coming = [_of_sender(mask, self._rank, sender) for sender in range(self._ranks)]
        going = [place[_of_sender(mask, receiver, self._rank)] for receiver in range(self._ranks)]
        self._received_rows = [len(rows) for rows in coming]
        self._sent_rows = [len(rows) for rows in going]
        self._coming, self._going = (_tensor(np.concatenate(rows), device) for rows in (coming, going))
        self._idle = not any(mask.receives)  # all ranks know it, so none waits for another
        self.bytes_sent = self.bytes_received = 0

    def fetch(self, k: Tensor, v: Tensor) -> Fetched:
        """Begins to send own rows and to receive those of others."""
        both = torch.cat([self._as_rows(x.index_select(self._axis, self._going)) for x in (k, v)], dim=1)
        finish = self._begun(both, self._sent_rows, self._received_rows)
        columns = both.shape[1] // (k.shape[-1] + v.shape[-1])
        k_whole, v_whole = self._whole(k), self._whole(v)

        def arrive() -> None:
            parts = finish().split([columns * x.shape[-1] for x in (k, v)], dim=1)
            for x, part in zip((k_whole, v_whole), parts, strict=True):
                x.index_copy_(self._axis, self._coming, self._of_rows(part, x))

        return Fetched(k_whole, v_whole, None if self._idle else arrive)

    def giving(self, dtype: Any) -> Giving:
        """Gradients of rows of K and V that are to go back to their owners, in `dtype`."""
        return Giving(self, dtype)

    def begin_back(self, dk: Tensor, dv: Tensor, dtype: Any) -> Callable[[], Tensor]:
        """Begins to send the gradients of others' rows, from those of full length."""
        both = torch.cat([self._as_rows(x.index_select(self._axis, self._coming)) for x in (dk, dv)], dim=1)
        return self._begun(both.to(dtype), self._received_rows, self._sent_rows)

    def summed(self, dk: Tensor, dv: Tensor, received: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of own rows in fp32 or wider: those that each rank found, added in the order of ranks."""
        wide = torch.promote_types(dk.dtype, torch.float32)
        own = torch.cat([self._as_rows(x.index_select(self._axis, self.own)) for x in (dk, dv)], dim=1).to(wide)
        total = torch.zeros_like(own)
        places, parts = (x.split(self._sent_rows) for x in (self._going, received))
        for rank, (place, part) in enumerate(zip(places, parts, strict=True)):
            if rank == self._rank:
                total += own
            else:
                total[place] += part.to(wide)  # a rank wants no row twice
        columns = own.shape[1] // (dk.shape[-1] + dv.shape[-1])
        parts = total.split([columns * x.shape[-1] for x in (dk, dv)], dim=1)
        dk_own, dv_own = (self._of_rows(part, like) for part, like in zip(parts, (dk, dv), strict=True))
        return dk_own, dv_own

    def _begun(self, rows: Tensor, sent: list[int], received: list[int]) -> Callable[[], Tensor]:
        """Begins an exchange. What it gives waits for the rows of others, of as many columns."""
        out = torch.empty(sum(received), rows.shape[1], dtype=rows.dtype, device=rows.device)
        if self._idle:
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

    def _as_rows(self, x: Tensor) -> Tensor:
        """[rows, all else]"""
        return x.movedim(self._axis, 0).flatten(1)

    def _of_rows(self, rows: Tensor, like: Tensor) -> Tensor:
        """The inverse of `_as_rows`, all other axes as `like` has them."""
        shape = like.movedim(self._axis, 0).shape[1:]
        return rows.reshape(-1, *shape).movedim(0, self._axis)

    def _whole(self, x: Tensor) -> Tensor:
        axis = self._axis % x.dim()
        whole = torch.zeros((*x.shape[:axis], self._rows, *x.shape[axis + 1 :]), dtype=x.dtype, device=x.device)
        return whole.index_copy_(axis, self.own, x)


class Giving:
    """dK and dV on their way. `start` once the gradients of others' rows are whole, `finished` once all are."""

    def __init__(self, exchange: Exchange, dtype: Any) -> None:
        self._exchange, self._dtype = exchange, dtype
        self._finish: Callable[[], Tensor] | None = None

    def start(self, dk: Tensor, dv: Tensor) -> None:
        self._finish = self._exchange.begin_back(dk, dv, self._dtype)

    def finished(self, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of own rows."""
        assert self._finish is not None, "nothing was sent"
        return self._exchange.summed(dk, dv, self._finish())


def _of_sender(mask: MaskPlan, receiver: int, sender: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    runs = [rows for each in mask.receives[receiver] if each.sender == sender for rows in each.rows]
    return np.concatenate([np.arange(begin, end) for begin, end in runs] or [np.zeros(0, np.int64)])


def _tensor(rows: np.ndarray[Any, np.dtype[np.int64]], device: Any) -> Tensor:
    return torch.from_numpy(rows.astype(np.int64)).to(device)
