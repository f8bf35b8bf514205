"""Rows that come late, into memory that an earlier call left full of what isn't finite: what each process runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import attncc
import attncc.distributed as shared

WORLD, ROWS = 2, 96
BEFORE = "fp32", "bf16"  # of another type, in whose bits a bf16 finds NaN; of the same, with NaN among its values


def process(rank: int, folder: str) -> None:
    """Writes by the type of the call before: what a window of 20 keys finds when rank 0 sends late, and at once."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    found = {}
    for before in BEFORE:
        rows = torch.linspace(-1, 1, ROWS * 16).reshape(1, 1, ROWS, 16).expand(1, 2, ROWS, 16).to(torch.bfloat16)
        cp = _shared("bf16")
        at_once = _of(cp, rows)  # both ranks meet in their first call
        _spoil(before)
        if rank == 0:
            time.sleep(0.3)
        found[before] = _of(cp, rows), at_once
    torch.save(found, Path(folder, f"{rank}.pt"))
    dist.barrier()
    dist.destroy_process_group()


def _shared(dtype: str) -> Any:
    kernel = attncc.compile("sliding_window", dtype=dtype, head_dim=16, width=20)
    plan = shared.plan(kernel, ROWS, batch=1, heads=(2, 2), head_dim=16, dtype=dtype, ranks=WORLD, chunk=ROWS // 4)
    return shared.shard(kernel, plan=plan, transport="peer")


def _spoil(dtype: str) -> None:
    """Both slots of the memory that ranks share."""
    word = torch.tensor([0x3F80_7FC0], dtype=torch.int32).view(torch.float32)  # its low half is a NaN of bf16
    x = torch.full((1, 2, ROWS, 16), float(word) if dtype == "fp32" else float("nan"))
    cp = _shared(dtype)
    for _ in range(2):
        own = cp.shard(x.to(getattr(torch, {"fp32": "float32", "bf16": "bfloat16"}[dtype])), -2)
        cp(own, own, own)


def _of(cp: Any, rows: torch.Tensor) -> list[torch.Tensor]:
    """out, dq, dk and dv of own rows."""
    q, k, v = (cp.shard(rows, -2, of=of).clone().requires_grad_() for of in ("q", "kv", "kv"))
    out = cp(q, k, v)
    out.sum().backward()
    return [out.detach(), q.grad, k.grad, v.grad]
