"""Where lists of live tiles pay: the same masks with tiles listed by a pre-pass, and tested in the kernel.

    python -m benchmarks.lists [--families portable,hopper] [--lengths 8192,65536] [--out FOLDER]

bf16, head dim 128, 16 heads, batch 1: maps that keep 32 random blocks for each block of queries (for all heads, and for
each head), documents in any order, every 32nd block, and a neighbourhood whose width divides no length. Times take in
all that a call launches.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import attncc

from .measure import RESULTS, compare, table, write

HEADS, HEAD_DIM, BLOCK = 16, 128, 64
TARGETS = {"portable": "sm_90", "hopper": "sm_90a"}
WAYS = ("in_kernel", "lists")
KEPT = 32  # blocks of keys that a block of queries keeps of a map


@dataclass(frozen=True)
class Case:
    """The lines of a variant, and the tensors of a call over so many tokens."""

    name: str
    lines: str
    inputs: Callable[[int], dict[str, torch.Tensor]] = lambda length: {}

    def kernel(self, family: str, way: str) -> Callable[..., torch.Tensor]:
        target = TARGETS[family]
        schedule = f"schedule s for v on {target} {{ family = {family} skip = {way} }}"
        text = f"attn 1\nvariant v {{\n{self.lines}\n}}\n{schedule}\n"
        return attncc.compile(text, dtype="bf16", head_dim=HEAD_DIM, arch=target)


def block_map(*lead: int) -> Callable[[int], dict[str, torch.Tensor]]:
    """`KEPT` blocks of keys for each block of queries."""

    def inputs(length: int) -> dict[str, torch.Tensor]:
        blocks = length // BLOCK
        scores = torch.rand(*lead, blocks, blocks, generator=torch.Generator("cuda").manual_seed(0), device="cuda")
        least = scores.topk(min(KEPT, blocks), dim=-1).values[..., -1:]
        return {"wanted": scores >= least}

    return inputs


def scattered_documents(length: int) -> dict[str, torch.Tensor]:
    """Pieces of 512 positions that belong to one of 64 documents each, in no order."""
    generator = torch.Generator("cuda").manual_seed(0)
    doc = torch.randint(0, 64, (1, length // 512), generator=generator, device="cuda", dtype=torch.int32)
    return {"doc": doc.repeat_interleave(512, dim=1)}


MAP = f"keep if wanted[{{}}q_idx // {BLOCK}, kv_idx // {BLOCK}]"
CASES = (
    Case("block map", f"input wanted: bool[_, _]\n{MAP.format('')}", block_map()),
    Case("block map of each head", f"input wanted: bool[head, _, _]\n{MAP.format('h, ')}", block_map(HEADS)),
    Case(
        "documents in any order",
        "input doc: i32[batch, pos]\nkeep if doc[b, q_pos] == doc[b, kv_idx]",
        scattered_documents,
    ),
    Case("far apart", f"keep if kv_idx // {BLOCK} % 32 == q_idx // {BLOCK} % 32"),
    Case(
        "neighbourhood", "keep if abs(q_idx // 100 - kv_idx // 100) <= 6\nkeep if abs(q_idx % 100 - kv_idx % 100) <= 6"
    ),
)


def measure(case: Case, family: str, length: int) -> list[dict[str, Any]]:
    q, k, v = (torch.randn(1, HEADS, length, HEAD_DIM, device="cuda").bfloat16() for _ in range(3))
    inputs, out = case.inputs(length), torch.empty_like(q)
    kernels = {way: case.kernel(family, way) for way in WAYS}
    one, other = (kernel(q, k, v, **inputs) for kernel in kernels.values())
    assert torch.allclose(one, other, rtol=2**-6, atol=2**-6), f"{case.name}: the two ways differ"

    def launch(kernel: Callable[..., torch.Tensor]) -> Callable[[], object]:
        return lambda: kernel(q, k, v, out=out, **inputs)

    timings = compare({way: launch(kernel) for way, kernel in kernels.items()}, rounds=5, window_ms=30, sustained_s=0.2)
    where = {"mask": case.name, "family": family, "length": length}
    return [{**where, "way": way, **asdict(timing)} for way, timing in timings.items()]


def summary(rows: list[dict[str, Any]]) -> str:
    times = {(row["mask"], row["family"], row["length"], row["way"]): row["milliseconds"] for row in rows}
    keys = list(dict.fromkeys(key[:3] for key in times))
    shown = [(*key, *(times[*key, way] for way in WAYS), times[*key, WAYS[0]] / times[*key, WAYS[1]]) for key in keys]
    return table(("mask", "family", "length", "in kernel ms", "lists ms", "ratio"), shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=lambda text: text.split(","), default=list(TARGETS))
    parser.add_argument("--lengths", type=lambda text: [int(part) for part in text.split(",")], default=[8192, 65536])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    cases = [(case, family, length) for case in CASES for family in options.families for length in options.lengths]
    rows = [row for case in cases for row in measure(*case)]
    print(f"{write('lists', rows, options.out)}\n{summary(rows)}")


if __name__ == "__main__":
    main()
