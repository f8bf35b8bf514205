"""A small module with learnable inputs, and some steps of its training: alone, or as one of several processes.

`python -m tests.gpu.training RANK FOLDER` is one of `WORLD`, each with a GPU of its own and its share of the batch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.torch import Attention

WORLD, STEPS, BATCH = 2, 3, 4
HEADS, ROWS, WIDTH, HEAD_DIM = 4, 200, 96, 64
SPEC = """attn 1
variant of_two_processes {
    input slope: f32[head] learnable
    input table: f32[head, 9] learnable
    input logit: f32[head] learnable
    keep if q_pos >= kv_idx
    score = score - slope[h] * (q_pos - kv_idx) + table[h, min(q_pos - kv_idx, 8)]
    sink logit
}
"""


class Layer(torch.nn.Module):
    """Rows are projected to q, k and v of as many heads, and back."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.given = torch.nn.Linear(WIDTH, 3 * HEADS * HEAD_DIM)
        first = {"slope": torch.rand(HEADS) / 10, "table": torch.randn(HEADS, 9), "logit": torch.randn(HEADS)}
        self.attention = Attention(attncc.compile(SPEC, dtype="fp32", head_dim=HEAD_DIM), layout="bshd", **first)
        self.taken = torch.nn.Linear(HEADS * HEAD_DIM, WIDTH)

    def forward(self, rows: Any) -> Any:
        q, k, v = self.given(rows).unflatten(-1, (3, HEADS, HEAD_DIM)).unbind(2)
        return self.taken(self.attention(q, k, v).flatten(2))


def batch() -> Any:
    return torch.randn(BATCH, ROWS, WIDTH, generator=torch.Generator().manual_seed(1))


def trained(model: Any, rows: Any) -> None:
    """The gradients of the last step stay."""
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()


def state(model: Layer) -> dict[str, Any]:
    """Parameters and their gradients, on the CPU."""
    found = {name: item.detach().cpu() for name, item in model.named_parameters()}
    return found | {f"{name}.grad": item.grad.cpu() for name, item in model.named_parameters()}


def main(rank: int, where: Path) -> None:
    import torch.distributed as dist

    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    store = f"file://{where}/store"
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=WORLD, device_id=device)
    model = torch.nn.parallel.DistributedDataParallel(Layer().to(device), device_ids=[rank])
    trained(model, batch().chunk(WORLD)[rank].to(device))
    torch.save(state(model.module), where / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
