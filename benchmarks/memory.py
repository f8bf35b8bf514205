"""Memory that attention takes in training: forward and backward, beside inputs, at its peak.

    python -m benchmarks.memory [--lengths 16384,131072] [--head-dims 64,128] [--out FOLDER]

bf16, causal, one sequence of four heads. `needed` is what the results take (out, lse, dq, dk, dv), 8 bytes for each row
(lse and delta), and one dQ in fp32; `taken` is the peak of torch's allocator beside q, k, v and dout, by
`kernel.backward` and by torch's autograd. Beside them SDPA's FlashAttention-2 back end, and `scores`, what one matrix
of scores of one head would take in bf16.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import attncc

from .forward import SPECS
from .measure import RESULTS, table, write

HEADS = 4
MEGABYTE = 1 << 20
ROW_BYTES = 8  # lse and delta

Step = Callable[..., Any]  # of dout, q, k and v: what training keeps


def direct(kernel: Any, deterministic: bool) -> Step:
    def step(dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        out, lse = kernel(q, k, v, return_lse=True)
        return out, lse, kernel.backward(dout, q, k, v, out, lse, deterministic=deterministic)

    return step


def recorded(attention: Callable[..., torch.Tensor]) -> Step:
    """By autograd."""

    def step(dout: torch.Tensor, *qkv: torch.Tensor) -> Any:
        leaves = [x.detach().requires_grad_() for x in qkv]
        out = attention(*leaves)
        return out, torch.autograd.grad(out, leaves, dout)

    return step


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=True)


def steps(head_dim: int) -> dict[str, Step]:
    kernel = attncc.compile(SPECS / "causal.attn", dtype="bf16", head_dim=head_dim)
    return {
        "attncc": direct(kernel, deterministic=False),
        "attncc, deterministic": direct(kernel, deterministic=True),
        "attncc, autograd": recorded(kernel),
        "FA2 (SDPA)": recorded(sdpa),
    }


def peak(step: Step, arrays: list[torch.Tensor]) -> int:
    """Bytes that a step takes beside its arguments."""
    step(*(x[:, :, :256] for x in arrays))  # loads kernels
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = int(torch.cuda.memory_allocated())
    step(*arrays)
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated()) - before


def measure(length: int, head_dim: int) -> list[dict[str, Any]]:
    shape = (1, HEADS, length, head_dim)
    arrays = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    rows = HEADS * length
    needed = 4 * arrays[0].nbytes + 4 * rows + ROW_BYTES * rows + 4 * rows * head_dim
    case = {"length": length, "head_dim": head_dim, "needed": needed, "scores": 2 * length**2}
    return [{**case, "candidate": name, "taken": peak(step, arrays)} for name, step in steps(head_dim).items()]


def main() -> None:
    def numbers(text: str) -> list[int]:
        return [int(item) for item in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=numbers, default="16384,131072")
    parser.add_argument("--head-dims", type=numbers, default="64,128")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = [row for case in product(options.lengths, options.head_dims) for row in measure(*case)]
    shown = [
        (row["length"], row["head_dim"], row["candidate"], *(row[name] / MEGABYTE for name in ("needed", "taken")))
        for row in rows
    ]
    print(write("memory", rows, options.out))
    print(table(("length", "head dim", "candidate", "needed MiB", "taken MiB"), shown))


if __name__ == "__main__":
    main()
