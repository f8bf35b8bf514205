"""The forward pass against SDPA's back ends and FlashAttention-4, at useful FLOPs.

    python -m benchmarks.forward [--head-dims 64,128,192:128] [--lengths 4096,16384] [--masks full,causal]
                                 [--families default,hopper,portable] [--tokens 16384] [--peers fa2,cudnn,fa4]
                                 [--rounds 9] [--out FOLDER]

bf16 normal inputs, 16,384 tokens, num_heads * head_dim about 2048, q_len = kv_len. TFLOP/s are useful ones: for each
kept (q, kv) pair 2 * (head_dim + value head dim). Every candidate is first compared with fp64 attention on one head.
A peer that doesn't take a case is left out of it. `192:128` has values of head dim 128. The family `default` is what a
call gets without a schedule: of fewer tokens that may be a kernel for few blocks of queries, which no named family has.
Calls of fewer tokens are timed as CUDA graphs of eight: else the GPU would wait for the host.

A case takes about 1.8 s for each candidate (nine rounds), and FlashAttention-4 some seconds for each head dim and mask
at its first call. Each peer runs once before our kernels are compiled, on all cores: so they are what a user gets
whose process has used the peers. `--peers ""` times our kernels in a process where nothing else ran.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.schedule.schedule import Schedule

from .flex import Launch, Tensors
from .measure import RESULTS, Timing, check, compare, graph_of, record, table, tflops
from .peers import PEERS, launches

TOKENS = 16384
MODEL_DIM = 2048
IN_GRAPH = 8  # calls
SPECS = Path(__file__).resolve().parent.parent / "specs"


@dataclass(frozen=True)
class Case:
    head_dim: int
    length: int
    causal: bool
    value_head_dim: int | None = None  # the same, if None
    tokens: int = TOKENS

    @property
    def values(self) -> int:
        return self.value_head_dim or self.head_dim

    @property
    def in_graphs(self) -> bool:
        return self.tokens < TOKENS

    @property
    def batch(self) -> int:
        return max(1, self.tokens // self.length)

    @property
    def heads(self) -> int:
        return MODEL_DIM // self.head_dim

    @property
    def useful_flops(self) -> float:
        pairs = self.length * (self.length + 1) / 2 if self.causal else self.length**2
        return 2.0 * (self.head_dim + self.values) * pairs * self.batch * self.heads

    @property
    def spec(self) -> str:
        return "causal" if self.causal else "full"

    def __str__(self) -> str:
        values = f":{self.value_head_dim}" if self.value_head_dim else ""
        batch = f"{self.batch} x " if self.tokens != TOKENS else ""
        return f"D{self.head_dim}{values} {batch}S{self.length} {self.spec}"

    def tensors(self) -> Tensors:
        """q, k, v [batch, heads, length, head_dim], bf16, normal."""
        generator = torch.Generator("cuda").manual_seed(self.head_dim + self.length)

        def normal(head_dim: int) -> torch.Tensor:
            shape = (self.batch, self.heads, self.length, head_dim)
            return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).bfloat16()

        return normal(self.head_dim), normal(self.head_dim), normal(self.values)


def our_target() -> str:
    """That of the portable family on this GPU."""
    major, minor = torch.cuda.get_device_capability()
    return "sm_80" if major == 8 else f"sm_{major}{minor}"


def kernel(case: Case, family: str) -> Callable[..., torch.Tensor]:
    default = family == "default"
    target = "sm_90a" if family == "hopper" else our_target()
    schedule = None if default else Schedule(family, case.spec, "forward", target, (("family", (family,)),))
    return attncc.compile(
        SPECS / f"{case.spec}.attn",
        dtype="bf16",
        head_dim=case.head_dim,
        value_head_dim=case.values,
        arch=None if default else target,
        schedule=schedule,
    )


def relative_error(out: torch.Tensor, qkv: Tensors, causal: bool) -> float:
    """||out - oracle|| / ||oracle|| over the last head of the last sequence, the oracle in fp64. Causal: the last query
    sees the last key."""
    q, k, v = (item[-1, -1].double() for item in qkv)
    score = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        score.masked_fill_(torch.ones_like(score, dtype=torch.bool).triu_(1 + len(k) - len(q)), -math.inf)
    oracle = score.softmax(-1) @ v
    return float((out[-1, -1].double() - oracle).norm() / oracle.norm())


def measure(case: Case, families: tuple[str, ...], peers: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """One row for each candidate."""
    qkv = case.tensors()

    def own(family: str) -> Launch:
        found = kernel(case, family)
        return lambda: found(*qkv)

    candidates = {f"attncc {family}": own(family) for family in families} | launches(peers, qkv, case.causal)
    if case.in_graphs:
        candidates = {name: graph_of([launch] * IN_GRAPH) for name, launch in candidates.items()}
    errors = {name: relative_error(launch(), qkv, case.causal) for name, launch in candidates.items()}
    check(case, errors, 1e-2)
    timings = compare(candidates, rounds=rounds)
    return [_row(case, name, timings[name], errors[name]) for name in candidates]


def _row(case: Case, name: str, timing: Timing, error: float) -> dict[str, Any]:
    calls = IN_GRAPH if case.in_graphs else 1
    of_one = {
        "milliseconds": timing.milliseconds / calls,
        "sustained_milliseconds": timing.sustained_milliseconds / calls,
        "windows": [window / calls for window in timing.windows],
    }
    return {
        "case": str(case),
        **asdict(case),
        "candidate": name,
        **tflops(calls * case.useful_flops, timing),
        "relative_error": error,
        **asdict(timing),
        **of_one,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """TFLOP/s of the windows / sustained with its clock and power, and how our first family stands to the best peer."""
    names = list(dict.fromkeys(row["candidate"] for row in rows))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["candidate"]: row for row in rows if row["case"] == case}
        own = next(row for name, row in found.items() if name.startswith("attncc"))
        others = [row for name, row in found.items() if not name.startswith("attncc")]
        shown = [_figures(found[name]) if name in found else "-" for name in names]
        lines.append((case, *shown, *(_ratio(own, others, kind) for kind in ("tflops", "sustained_tflops"))))
    return table(("TFLOP/s windows / sustained", *names, "x best peer", "sustained"), lines)


def _figures(row: dict[str, Any]) -> str:
    figures = f"{row['tflops']:.0f} / {row['sustained_tflops']:.0f}"
    return f"{figures} {row['sm_clock_mhz']:.0f} MHz {row['watts']:.0f} W"


def _ratio(own: dict[str, Any], others: list[dict[str, Any]], kind: str) -> str:
    return f"{own[kind] / max(row[kind] for row in others):.2f}" if others else "-"


def head_dims(text: str) -> list[tuple[int, int | None]]:
    """`64,192:128` as head dims of keys and of values."""
    pairs = (item.partition(":") for item in text.split(","))
    return [(int(keys), int(values) if values else None) for keys, _, values in pairs]


def names(text: str) -> tuple[str, ...]:
    return tuple(item for item in text.split(",") if item)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head-dims", type=head_dims, default="64,128")
    parser.add_argument("--lengths", type=lambda text: [int(item) for item in text.split(",")], default="4096,16384")
    parser.add_argument("--masks", type=names, default="full,causal")
    parser.add_argument("--families", type=names, default="default", help="the first is compared with the best peer")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="in all sequences")
    parser.add_argument("--peers", type=names, default="fa2,cudnn,fa4", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    cases = [
        Case(keys, length, mask == "causal", values, options.tokens)
        for (keys, values), length, mask in product(options.head_dims, options.lengths, options.masks)
    ]
    launches(options.peers, cases[0].tensors(), cases[0].causal)  # each runs once
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda item: kernel(*item), product(cases, options.families)))
    record(
        "forward",
        cases,
        lambda case: measure(case, options.families, options.peers, options.rounds),
        summary,
        options.out,
    )


if __name__ == "__main__":
    main()
