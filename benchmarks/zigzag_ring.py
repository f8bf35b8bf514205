"""Ring attention on attncc's kernels, to compare `attncc.distributed.shard` with: K, V turn, lse merges what is found.

Causal masks in zigzag order: rank r has rows of chunks r and 2N - 1 - r of 2N. After the first step, on its own rows, a
rank that receives from an earlier one computes all of its queries with the first half of these keys, else its second
half with all of them. No pairs are computed in vain. (Liu et al., "Ring Attention with Blockwise Transformers", 2023;
the order of rows as in ring-flash-attention.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

Tensor = Any


class ZigzagRing:
    """q, k, v are [batch, heads, rows, head dim] of own rows. `causal` and `full` are kernels."""

    def __init__(self, causal: Any, full: Any, *, masked: bool) -> None:
        self.causal, self.full, self.masked = causal, full, masked
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()

    def rows(self, whole: int) -> Tensor:
        """The rows that this rank owns, in order."""
        if not self.masked:
            each = whole // self.ranks
            return torch.arange(self.rank * each, (self.rank + 1) * each)
        each = whole // (2 * self.ranks)
        first, second = self.rank * each, (2 * self.ranks - 1 - self.rank) * each
        return torch.cat([torch.arange(first, first + each), torch.arange(second, second + each)])

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _Recorded.apply(q, k, v, self)

    def step(self, number: int, half: int) -> tuple[Any, slice, slice]:
        """The kernel of a step, and which rows of q and of the keys in hand it takes."""
        whole = slice(None)
        if not self.masked:
            return self.full, whole, whole
        if number == 0:
            return self.causal, whole, whole
        if number <= self.rank:
            return self.full, whole, slice(0, half)
        return self.full, slice(half, None), whole

    def turn(self, x: Tensor) -> Callable[[], Tensor]:
        """Sends to the next rank. What it gives waits for what the one before sent."""
        into = torch.empty_like(x)
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        moves = [dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, into, before)]
        works = dist.batch_isend_irecv(moves)

        def arrived() -> Tensor:
            for work in works:
                work.wait()
            return into

        return arrived


class _Recorded(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ring: ZigzagRing) -> Tensor:
        held, half = torch.stack([k, v]), q.shape[2] // 2
        out = torch.zeros((*q.shape[:-1], v.shape[-1]), dtype=torch.float32, device=q.device)
        lse = torch.full(q.shape[:-1], -torch.inf, dtype=torch.float32, device=q.device)
        for number in range(ring.ranks):
            arrived = ring.turn(held) if number + 1 < ring.ranks else None
            kernel, rows, keys = ring.step(number, half)
            part, part_lse = kernel(q[:, :, rows], *held[:, :, :, keys], return_lse=True)
            total = torch.logaddexp(lse[:, :, rows], part_lse)
            old, new = ((x - total).exp_().unsqueeze(-1) for x in (lse[:, :, rows], part_lse))
            out[:, :, rows] = out[:, :, rows] * old + part * new
            lse[:, :, rows] = total
            held = arrived() if arrived else held
        ctx.ring = ring
        result = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, result, lse)
        return result

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """The gradients of keys travel one step behind them, in fp32."""
        (q, k, v, out, lse), ring = ctx.saved_tensors, ctx.ring
        held, half = torch.stack([k, v]), q.shape[2] // 2
        dq, dheld = torch.zeros_like(q, dtype=torch.float32), torch.zeros_like(held, dtype=torch.float32)
        back: Callable[[], Tensor] | None = None
        for number in range(ring.ranks):
            arrived = ring.turn(held) if number + 1 < ring.ranks else None
            kernel, rows, keys = ring.step(number, half)
            some = (x[:, :, rows].contiguous() for x in (dout, q, out, lse))
            own_dout, own_q, own_out, own_lse = some
            found = kernel.backward(own_dout, own_q, *held[:, :, :, keys].contiguous(), own_out, own_lse)
            dq[:, :, rows] += found.dq
            dheld = back() if back else dheld
            dheld[0][:, :, keys] += found.dk
            dheld[1][:, :, keys] += found.dv
            back = ring.turn(dheld)
            held = arrived() if arrived else held
        assert back is not None
        dk, dv = back().to(k.dtype)
        return dq.to(q.dtype), dk, dv, None
