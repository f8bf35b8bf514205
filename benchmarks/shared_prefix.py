"""Decoding where all sequences share a prefix: one call with `shared_prefix`, beside two calls merged and one without.

    python -m benchmarks.shared_prefix [--cases 64x32768+1024,16x8192+512] [--rounds 5] [--out FOLDER]

A case is sequences x shared keys + own keys of each; bf16, 32 query heads, 8 key heads of 128, a causal mask. TB/s
count the prefix once. Two calls: all queries as rows of one sequence over the prefix, each over its own keys, then
`attncc.merge`. Each candidate is a CUDA graph of one call, compared first with fp64 attention on one head. K and V are
larger than the L2 cache. The first case takes 10 s and 20 GB.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import attncc

from .flex import Launch
from .forward import SPECS
from .measure import RESULTS, check, compare, graph_of, record, table

HEADS, KV_HEADS, HEAD_DIM, PAGE = 32, 8, 128, 64
DEFAULT_CASES = "64x32768+1024,16x8192+512"


@dataclass(frozen=True)
class Case:
    batch: int
    prefix: int
    own: int

    @classmethod
    def of(cls, text: str) -> Case:
        batch, _, keys = text.partition("x")
        prefix, _, own = keys.partition("+")
        return cls(int(batch), int(prefix), int(own))

    def __str__(self) -> str:
        return f"{self.batch} x {self.prefix} + {self.own}"

    @property
    def kv_bytes(self) -> int:
        return 2 * KV_HEADS * HEAD_DIM * 2 * (self.prefix + self.batch * self.own)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def kernel(name: str) -> Any:
    return attncc.compile(SPECS / f"{name}.attn", dtype="bf16", head_dim=HEAD_DIM)


class Problem:
    """K and V of the prefix, and of each sequence behind it; the same as caches with all keys, and in pages."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        self.case, self.q = case, normal(case.batch, HEADS, 1, HEAD_DIM)
        self.prefix = [normal(1, KV_HEADS, case.prefix, HEAD_DIM) for _ in range(2)]
        self.own = [normal(case.batch, KV_HEADS, case.own, HEAD_DIM) for _ in range(2)]
        keys = case.prefix + case.own
        self.lengths = torch.full((case.batch,), keys, device="cuda", dtype=torch.int32)
        shared, each = case.prefix // PAGE, case.own // PAGE
        pages = torch.randperm(shared + case.batch * each, device="cuda").int()
        first, rest = pages[:shared].expand(case.batch, -1), pages[shared:].reshape(case.batch, each)
        self.table = torch.cat((first, rest), 1).contiguous()
        self.pools = [self._pool(pages, *parts) for parts in zip(self.prefix, self.own, strict=True)]

    @staticmethod
    def _pool(pages: torch.Tensor, prefix: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        parts = [x.unflatten(2, (-1, PAGE)).transpose(1, 2).flatten(0, 1) for x in (prefix, own)]
        rows = torch.cat(parts)
        pool = torch.empty_like(rows)
        pool[pages.long()] = rows
        return pool

    def caches(self) -> list[torch.Tensor]:
        """[batch, key heads, keys, head dim]; what sequences share stands in sequence 0 alone."""
        made = []
        for prefix, own in zip(self.prefix, self.own, strict=True):
            cache = torch.empty(
                (self.case.batch, KV_HEADS, int(self.lengths[0]), HEAD_DIM), device="cuda", dtype=own.dtype
            )
            cache[:1, :, : self.case.prefix], cache[:, :, self.case.prefix :] = prefix, own
            made.append(cache)
        return made

    def candidates(self) -> dict[str, Callable[[], torch.Tensor]]:
        causal, full = kernel("causal"), kernel("full")
        in_pages = {"kv_lens": self.lengths, "block_table": self.table}
        caches, shared = self.caches(), self.case.prefix
        rows = self.q.transpose(0, 2).contiguous()  # of one sequence

        def merged() -> torch.Tensor:
            out, lse = full(rows, *self.prefix, return_lse=True)
            other = full(self.q, *self.own, return_lse=True)
            both: torch.Tensor = attncc.merge(out.transpose(0, 2), lse.transpose(0, 2), *other)[0]
            return both

        return {
            "shared": lambda: causal(self.q, *caches, kv_lens=self.lengths, shared_prefix=shared),
            "shared, pages": lambda: causal(self.q, *self.pools, **in_pages, shared_prefix=shared),
            "two calls merged": merged,
            "prefix alone": lambda: full(rows, *self.prefix),
            "own keys alone": lambda: full(self.q, *self.own),
            "one call, pages": lambda: causal(self.q, *self.pools, **in_pages),
        }

    def relative_error(self, out: torch.Tensor) -> float:
        """||out - oracle|| / ||oracle|| over the last head of the last sequence, the oracle in fp64."""
        k, v = (torch.cat((a[0, -1], b[-1, -1])).double() for a, b in zip(self.prefix, self.own, strict=True))
        oracle = (self.q[-1, -1].double() @ k.T / math.sqrt(HEAD_DIM)).softmax(-1) @ v
        return float((out[-1, -1].double() - oracle).norm() / oracle.norm())


def measure(case: Case, rounds: int) -> list[dict[str, Any]]:
    """One row for each candidate."""
    problem = Problem(case)
    graphs: dict[str, Launch] = {name: graph_of([call]) for name, call in problem.candidates().items()}
    whole = (name for name in graphs if "alone" not in name)
    errors = {name: problem.relative_error(graphs[name]()) for name in whole}
    check(case, errors, 2e-2)
    timings = compare(graphs, rounds=rounds, window_ms=30, sustained_s=0.1)
    return [
        {
            "case": str(case),
            **asdict(case),
            "candidate": name,
            **asdict(timings[name]),
            "tb_per_s": case.kv_bytes / timings[name].milliseconds * 1e-9,
            "relative_error": errors.get(name),
        }
        for name in graphs
    ]


def summary(rows: list[dict[str, Any]]) -> str:
    """Microseconds of each candidate, and how often faster than two calls merged."""
    columns = list(dict.fromkeys(row["candidate"] for row in rows))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["candidate"]: row["milliseconds"] for row in rows if row["case"] == case}
        two = found["two calls merged"]
        lines.append((case, *(f"{found[name] * 1e3:.1f} ({two / found[name]:.2f})" for name in columns)))
    return table(("us (x two calls)", *columns), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=lambda text: list(map(Case.of, text.split(","))), default=DEFAULT_CASES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    calls = Problem(Case(2, 256, 256)).candidates()  # compiles all kernels, beside each other
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda call: call(), calls.values()))
    record("shared_prefix", options.cases, lambda case: measure(case, options.rounds), summary, options.out)


if __name__ == "__main__":
    main()
