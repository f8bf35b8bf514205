"""Chunks of queries behind a cache: each form of our call, beside FlashAttention-3.

    python -m benchmarks.chunks [--head-dims 64,128,256] [--peers] [--rounds 7] [--out FOLDER]

bf16 normal inputs, causal, dense. Our forms: what a call gets, the forward kernel, the one that splits keys, and
decode. FlashAttention-3 (fa3-fwd) is `flash_attn_with_kvcache`, with its own choice of splits. Each candidate is a CUDA
graph of calls on copies of the problem whose keys fill the L2 cache more than once. Every candidate is first compared
with fp64 attention on one head.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attncc.compiler import CompiledStore, load_specification
from attncc.kernels.crossings import NEVER, Crossings
from attncc.runtime.cuda.driver import driver
from attncc.runtime.cuda.timing import copies_beyond_cache
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.loaded_kernels import KernelLoader
from attncc.runtime.store.store import Configuration

from .flex import Launch, Tensors
from .forward import SPECS, relative_error
from .measure import RESULTS, Timing, check, compare, graph_of, record, table
from .peers import taking

OURS = "attncc"
PEER = "FA3"
_NO_DECODE = {"split_keys": NEVER, "uneven_split_keys": NEVER}
FORMS = {
    OURS: Crossings(),
    "forward": Crossings(combine_keys=NEVER, **_NO_DECODE),
    "split": Crossings(combine_keys=0, **_NO_DECODE),
    "decode": Crossings(combine_keys=NEVER, split_keys=1e-3, uneven_split_keys=1e-3, row_block_cost=1e-9),
}


@dataclass(frozen=True)
class Case:
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int = 128

    def __str__(self) -> str:
        return f"{self.batch} x {self.heads}/{self.kv_heads}, {self.q_len} x {self.kv_len}, D{self.head_dim}"

    def tensors(self) -> list[Tensors]:
        generator = torch.Generator("cuda").manual_seed(self.kv_len)

        def normal(heads: int, length: int) -> torch.Tensor:
            shape = self.batch, heads, length, self.head_dim
            return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

        read = 2 * self.batch * self.kv_heads * self.kv_len * self.head_dim * 2
        return [
            (normal(self.heads, self.q_len), normal(self.kv_heads, self.kv_len), normal(self.kv_heads, self.kv_len))
            for _ in range(copies_beyond_cache(read, driver().device(0).l2_bytes))
        ]


CASES = (
    *(Case(1, 32, 8, q_len, kv_len) for q_len in (17, 60, 128, 256, 512) for kv_len in (4096, 8192, 32768)),
    *(Case(1, 32, 8, q_len, 8192) for q_len in (200, 384)),
    Case(1, 32, 8, 1024, 16384), Case(1, 32, 8, 2048, 16384),
    Case(4, 32, 8, 60, 8192), Case(2, 32, 8, 256, 8192), Case(1, 64, 8, 32, 8192), Case(1, 64, 8, 128, 8192),
    Case(1, 8, 1, 512, 16384), Case(1, 8, 8, 128, 1536), Case(1, 8, 8, 128, 4096), Case(1, 8, 8, 512, 512),
    Case(1, 24, 8, 60, 8192), Case(1, 24, 8, 128, 8192), Case(1, 40, 8, 60, 8192), Case(1, 28, 4, 64, 16384),
    Case(1, 28, 4, 256, 16384),
)  # fmt: skip
OTHERS = tuple(
    Case(1, 32, 8, q_len, kv_len)
    for q_len, kv_len in ((60, 8192), (128, 8192), (256, 8192), (256, 32768), (512, 16384))
)


def kernels(head_dim: int) -> dict[str, Kernel]:
    """Ours, by form."""
    store = CompiledStore(
        load_specification(SPECS / "causal.attn", None, {})[0], Configuration("bf16", head_dim, head_dim), ("sm_90a",)
    )
    store.compile_now()
    return {
        name: Kernel(store, (KernelLoader(store, crossings=points), KernelLoader(store, backward=True)))
        for name, points in FORMS.items()
    }


def fa3(problems: list[Tensors]) -> Launch:
    from fa3_fwd_interface import flash_attn_with_kvcache

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        found = flash_attn_with_kvcache(*qkv, causal=True)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return graph_of([partial(call, *(item.transpose(1, 2).contiguous() for item in qkv)) for qkv in problems])


def measure(case: Case, ours: dict[str, Kernel], peers: bool, rounds: int) -> list[dict[str, Any]]:
    """One row for each candidate; times are of one call."""
    problems = case.tensors()
    made: dict[str, Callable[[], Launch]] = {
        name: partial(lambda kernel: graph_of([partial(kernel, *qkv) for qkv in problems]), kernel)
        for name, kernel in ours.items()
    }
    if peers:
        made[PEER] = partial(fa3, problems)
    graphs = taking(made)
    errors = {name: relative_error(launch(), problems[0], causal=True) for name, launch in graphs.items()}
    check(case, errors, 2e-2)
    timings = compare(graphs, rounds=rounds, window_ms=8, sustained_s=0.1)
    return [_row(case, name, timings[name], errors[name], len(problems)) for name in graphs]


def _row(case: Case, name: str, timing: Timing, error: float, calls: int) -> dict[str, Any]:
    return {
        "case": str(case), **asdict(case), "candidate": name, "copies": calls, **asdict(timing),
        "milliseconds": timing.milliseconds / calls, "windows": [window / calls for window in timing.windows],
        "relative_error": error,
    }  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> str:
    """Microseconds of each candidate, how what calls get stands to our best form, and the peer's time to it."""
    columns = list(dict.fromkeys(row["candidate"] for row in rows))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["candidate"]: 1e3 * row["milliseconds"] for row in rows if row["case"] == case}
        ours = found[OURS]
        best = min(time for name, time in found.items() if name != PEER)
        peer = f"{found[PEER] / ours:.2f}" if PEER in found else "-"
        lines.append((case, *(f"{found[name]:.1f}" if name in found else "-" for name in columns), ours / best, peer))
    return table(("us", *columns, "over best", "x FA3"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--head-dims", type=lambda text: [int(item) for item in text.split(",")], default=[64, 128, 256]
    )
    parser.add_argument("--peers", action="store_true", help="beside FlashAttention-3")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    ours = {head_dim: kernels(head_dim) for head_dim in options.head_dims}
    cases = [
        Case(**{**asdict(case), "head_dim": head_dim})
        for head_dim in options.head_dims
        for case in (CASES if head_dim == 128 else OTHERS)
    ]
    record(
        "chunks",
        cases,
        lambda case: measure(case, ours[case.head_dim], options.peers, options.rounds),
        summary,
        options.out,
    )


if __name__ == "__main__":
    main()
