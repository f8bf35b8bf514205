"""Trains a small transformer on long sequences that several processes share: `python examples/train_long.py`.

    python examples/train_long.py --ranks 4 --rows 1024

Without GPUs the processes are two, with gloo and the CPU executor; with GPUs there is one for each, with NCCL. Layers
take turns: attention within a window, then causal attention. One plan gives both one assignment of rows to ranks.
After training, one process does the same steps with whole sequences, and finds the same losses.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import attncc
import attncc.distributed
from attncc.distributed import ContextParallel, Plan

F = torch.nn.functional


@dataclass(frozen=True)
class Size:
    ranks: int = 2
    rows: int = 256  # of a sequence
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    width: int = 32  # of the window
    batch: int = 2
    steps: int = 5
    dtype: str = "fp32"  # bf16 on GPUs

    @property
    def model(self) -> int:
        return self.heads * self.head_dim


WORDS = 64


def kernels(size: Size) -> tuple[attncc.Kernel, attncc.Kernel]:
    """Of even layers and of odd ones."""
    form: dict[str, Any] = {"dtype": size.dtype, "head_dim": size.head_dim}
    return attncc.compile("sliding_window", width=size.width, **form), attncc.compile("causal", **form)


def plan_of(size: Size) -> Plan:
    """The same in every process, since it depends on its arguments alone."""
    window, causal = kernels(size)
    return attncc.distributed.plan(
        [(window, (size.layers + 1) // 2), (causal, max(size.layers // 2, 1))],
        size.rows,
        ranks=size.ranks,
        batch=size.batch,
        heads=(size.heads, size.kv_heads),
        head_dim=size.head_dim,
        dtype=size.dtype,
    )


class Attention(torch.nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.qkv = torch.nn.Linear(size.model, (size.heads + 2 * size.kv_heads) * size.head_dim)
        self.out = torch.nn.Linear(size.model, size.model)

    def forward(self, x: Any, attend: Any, positions: Any) -> Any:
        """x [batch, rows, model]; `attend` takes q, k and v, `positions` are those of the rows."""
        size = self.size
        parts = self.qkv(x).unflatten(-1, (-1, size.head_dim)).transpose(1, 2)
        q, k, v = parts.split([size.heads, size.kv_heads, size.kv_heads], dim=1)
        q, k = rotated(q, positions), rotated(k, positions)
        kind = torch.bfloat16 if size.dtype == "bf16" else torch.float32
        attended = attend(*(part.to(kind).contiguous() for part in (q, k, v)))
        return self.out(attended.to(x.dtype).transpose(1, 2).flatten(2))


def rotated(x: Any, positions: Any) -> Any:
    """Rotary embedding: needs the places of rows in the sequence, not in the local tensor."""
    half = x.shape[-1] // 2
    turns = positions[:, None] * 1e4 ** (-torch.arange(half, device=x.device) / half)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * turns.cos() - b * turns.sin(), b * turns.cos() + a * turns.sin()], dim=-1)


class Model(torch.nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, size.model)
        self.attention = torch.nn.ModuleList(Attention(size) for _ in range(size.layers))
        self.feed = torch.nn.ModuleList(torch.nn.Linear(size.model, size.model) for _ in range(size.layers))
        self.last = torch.nn.Linear(size.model, WORDS)

    def forward(self, tokens: Any, attends: tuple[Any, Any], positions: Any) -> Any:
        x = self.words(tokens)
        for number, (attention, feed) in enumerate(zip(self.attention, self.feed, strict=True)):
            x = x + attention(F.layer_norm(x, x.shape[-1:]), attends[number % 2], positions)
            x = x + F.gelu(feed(F.layer_norm(x, x.shape[-1:])))
        return self.last(x)


def batch_of(size: Size, step: int) -> tuple[Any, Any]:
    """Tokens and the next ones: each is that of seven places before, or a random one."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(WORDS, (size.batch, size.rows + 1), generator=generator)
    copied = torch.rand(size.batch, size.rows + 1, generator=generator) < 0.9
    for place in range(7, size.rows + 1):
        tokens[:, place] = torch.where(copied[:, place], tokens[:, place - 7], tokens[:, place])
    return tokens[:, :-1], tokens[:, 1:]


@dataclass(frozen=True)
class Whole:
    """One process: what `ContextParallel` does for several."""

    rows: int

    def shard(self, x: Any, dim: int) -> Any:
        return x

    def positions(self) -> Any:
        return torch.arange(self.rows)


def train(size: Size, device: Any, attends: tuple[Any, Any], rows: ContextParallel | Whole) -> list[float]:
    """The loss of each step. Gradients of weights are summed over ranks; DDP and FSDP2 do so, too."""
    torch.manual_seed(0)
    model = Model(size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    positions, losses = rows.positions().to(device), []
    for step in range(size.steps):
        tokens, wanted = (rows.shard(x, 1).to(device) for x in batch_of(size, step))
        logits = model(tokens, attends, positions)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / (size.batch * size.rows)
        optimizer.zero_grad()
        loss.backward()
        total = loss.detach()
        if isinstance(rows, ContextParallel):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            dist.all_reduce(total)
        optimizer.step()
        losses.append(total.item())
    return losses


def process(rank: int, size: Size, folder: str) -> None:
    """One rank. The first writes the losses."""
    torch.set_num_threads(1)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    meeting, backend = f"file://{folder}/meeting", "nccl" if cuda else "gloo"
    own = device if cuda else None  # which GPU objects go through
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=size.ranks, device_id=own)
    plan = plan_of(size)
    if rank == 0:
        print(plan.explain())
    window, causal = (attncc.distributed.shard(kernel, plan=plan) for kernel in kernels(size))
    losses = train(size, device, (window, causal), window)
    if rank == 0:
        torch.save(losses, Path(folder, "losses"))
    dist.barrier()
    dist.destroy_process_group()


def shared_losses(size: Size) -> list[float]:
    """Of training by processes that share each sequence."""
    # NVLink multicast stays off: where the driver doesn't allow it, NCCL and symmetric memory fail or hang.
    os.environ |= {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(process, (size, folder), nprocs=size.ranks)
        losses: list[float] = torch.load(Path(folder, "losses"))
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--rows", type=int, default=Size.rows)
    parser.add_argument("--steps", type=int, default=Size.steps)
    given = parser.parse_args()
    size = Size(given.ranks, given.rows, steps=given.steps)
    cuda = torch.cuda.is_available()
    size = replace(size, dtype="bf16", head_dim=64) if cuda else size
    shared = shared_losses(size)
    alone = train(size, "cuda" if cuda else "cpu", kernels(size), Whole(size.rows))
    for step, (own, other) in enumerate(zip(shared, alone, strict=True)):
        print(f"step {step}: loss {own:.5f} of {size.ranks} processes, {other:.5f} of one")


if __name__ == "__main__":
    main()
