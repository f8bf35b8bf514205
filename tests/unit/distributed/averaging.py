"""A module with a learnable input under DistributedDataParallel: what each process runs."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

import attncc
from attncc.torch import Attention

WORLD = 2
BIASED = """attn 1
variant biased {
    input slope: f32[head] learnable
    score = score - slope[h] * abs(q_pos - kv_idx)
}
"""


def gradient(rank: int) -> torch.Tensor:
    """Of the slopes."""
    kernel = attncc.compile(BIASED, dtype="fp32", head_dim=16)
    model = torch.nn.parallel.DistributedDataParallel(Attention(kernel, slope=torch.ones(4)))
    q = torch.full((1, 4, 8, 16), float(rank + 1)) * torch.linspace(-1, 1, 8)[:, None]
    model(q, q[:, :2], q[:, :2]).square().sum().backward()
    return model.module.slope.grad


def process(rank: int, folder: str) -> None:
    """Writes the gradient. The model goes first, then the group. If the model were the group's last owner, it would
    wait for the group's threads and hold the GIL, which they need: a deadlock (torch 2.13, Gloo)."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    torch.save(gradient(rank), Path(folder, f"{rank}.pt"))
    dist.destroy_process_group()
