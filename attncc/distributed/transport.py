"""Rows of K and V from rank to rank by one `all_to_all_single`, exactly those of the plan; their gradients back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .plan_data import MaskPlan, PlanData

Tensor = Any


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
        self.bytes_sent = self.bytes_received = 0

    def fetch(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """K and V in logical order, of full length: own rows, received rows, and zeros where neither is needed."""
        both = torch.cat([self._as_rows(x.index_select(self._axis, self._going)) for x in (k, v)], dim=1)
        received = self._swapped(both, self._sent_rows, self._received_rows)
        columns = both.shape[1] // (k.shape[-1] + v.shape[-1])
        parts = received.split([columns * x.shape[-1] for x in (k, v)], dim=1)
        k_whole, v_whole = (self._whole(x, part) for x, part in zip((k, v), parts, strict=True))
        return k_whole, v_whole

    def give_back(self, dk: Tensor, dv: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
        """The gradients of own rows in fp32 or wider, from those of full length that each rank has.

        They travel in `dtype`. Each row's sum takes ranks in their order, so its bits don't depend on timing.
        """
        both = torch.cat([self._as_rows(x.index_select(self._axis, self._coming)) for x in (dk, dv)], dim=1)
        received = self._swapped(both.to(dtype), self._received_rows, self._sent_rows)
        wide = torch.promote_types(dk.dtype, torch.float32)
        own = torch.cat([self._as_rows(x.index_select(self._axis, self.own)) for x in (dk, dv)], dim=1).to(wide)
        total = torch.zeros_like(own)
        places, parts = (x.split(self._sent_rows) for x in (self._going, received))
        for rank, (place, part) in enumerate(zip(places, parts, strict=True)):
            if rank == self._rank:
                total += own
            else:
                total[place] += part.to(wide)  # a rank wants no row twice
        columns = both.shape[1] // (dk.shape[-1] + dv.shape[-1])
        parts = total.split([columns * x.shape[-1] for x in (dk, dv)], dim=1)
        dk_own, dv_own = (self._of_rows(part, like) for part, like in zip(parts, (dk, dv), strict=True))
        return dk_own, dv_own

    def _swapped(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """What the others send of as many columns."""
        out = torch.empty(sum(received), rows.shape[1], dtype=rows.dtype, device=rows.device)
        size = rows.shape[1] * rows.element_size()
        self.bytes_sent += sum(sent) * size
        self.bytes_received += sum(received) * size
        # As bytes, since gloo doesn't know all types.
        into, given = (x.contiguous().view(torch.uint8) for x in (out, rows))
        dist.all_to_all_single(into, given, received, sent, group=self._group)
        return into.view(rows.dtype)

    def _as_rows(self, x: Tensor) -> Tensor:
        """[rows, all else]"""
        return x.movedim(self._axis, 0).flatten(1)

    def _of_rows(self, rows: Tensor, like: Tensor) -> Tensor:
        """The inverse of `_as_rows`, all other axes as `like` has them."""
        shape = like.movedim(self._axis, 0).shape[1:]
        return rows.reshape(-1, *shape).movedim(0, self._axis)

    def _whole(self, x: Tensor, received: Tensor) -> Tensor:
        axis = self._axis % x.dim()
        shape = (*x.shape[:axis], self._rows, *x.shape[axis + 1 :])
        whole = torch.zeros(shape, dtype=x.dtype, device=x.device)
        whole.index_copy_(axis, self.own, x)
        return whole.index_copy_(axis, self._coming, self._of_rows(received, x))


def _of_sender(mask: MaskPlan, receiver: int, sender: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    runs = [rows for each in mask.receives[receiver] if each.sender == sender for rows in each.rows]
    return np.concatenate([np.arange(begin, end) for begin, end in runs] or [np.zeros(0, np.int64)])


def _tensor(rows: np.ndarray[Any, np.dtype[np.int64]], device: Any) -> Tensor:
    return torch.from_numpy(rows.astype(np.int64)).to(device)
