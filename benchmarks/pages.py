"""Decode over contiguous caches and over pages, with the tiles that are chosen and with others.

    python -m benchmarks.pages [--cases NAMES] [--tiles 64x64x4x3,...] [--pages 64,16] [--rounds 5] [--out FOLDER]

bf16 normal inputs, 32 query heads over 8 key heads of 128 columns, one query, no mask, `layout="bshd"` as serving
engines keep caches. Lengths are equal, or those of a lognormal batch: the same keys in a padded cache and in pools,
whose pages stand in random order. `--tiles` adds kernels with other tiles, block_q x block_kv x warps x stages; `/16`
behind one: 16 splits. Results over pages that haven't the bits of those over contiguous keys are named. Device time
as in `benchmarks.decode`.

A case takes about half a second for each candidate and kind of cache.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.schedule.schedule import Schedule

from .decode import HEAD_DIM, L2_FILLS
from .flex import Launch
from .forward import SPECS, our_target
from .measure import RESULTS, check, compare, graph_of, record, table

HEADS, KV_HEADS = 32, 8
KNOBS = ("block_q", "block_kv", "warps", "stages")
CHOSEN = "chosen"


@dataclass(frozen=True)
class Case:
    name: str
    lengths: tuple[int, ...]
    room: int

    @property
    def kv_bytes(self) -> int:
        return 2 * sum(self.lengths) * KV_HEADS * HEAD_DIM * 2

    @property
    def ragged(self) -> bool:
        return len(set(self.lengths)) > 1

    def __str__(self) -> str:
        return self.name


def lognormal(batch: int, room: int) -> tuple[int, ...]:
    """Lengths up to `room`: median an eighth of it, sigma 1."""
    numbers = random.Random(7)
    return tuple(min(room, max(1, int(numbers.lognormvariate(math.log(room / 8), 1.0)))) for _ in range(batch))


CASES = {
    case.name: case
    for case in (
        Case("B1 1k", (1024,), 1024), Case("B1 8k", (8192,), 8192), Case("B8 8k", (8192,) * 8, 8192),
        Case("B16 8k", (8192,) * 16, 8192), Case("B1 128k", (131072,), 131072),
        Case("lognormal B64", lognormal(64, 32768), 32768),
    )
}  # fmt: skip


@cache
def kernel(tiles: str) -> Any:
    """Our kernel; with tiles as the command line has them, or as a user gets it."""
    if tiles == CHOSEN:
        return attncc.compile(SPECS / "full.attn", dtype="bf16", head_dim=HEAD_DIM, arch=our_target())
    numbers, _, splits = tiles.partition("/")
    settings = dict(zip(KNOBS, map(int, numbers.split("x")), strict=True)) | (
        {"split_kv": int(splits)} if splits else {}
    )
    schedule = Schedule("tiles", "full", "decode", our_target(), tuple((name, (x,)) for name, x in settings.items()))
    return attncc.compile(SPECS / "full.attn", dtype="bf16", head_dim=HEAD_DIM, arch=our_target(), schedule=schedule)


class Problem:
    """q [batch, 1, 32, 128] and k, v [batch, room, 8, 128], in copies beyond the L2 cache; the same keys in pages."""

    def __init__(self, case: Case, device: str = "cuda") -> None:
        self.case, self.device = case, device
        self.generator = torch.Generator(device).manual_seed(7)
        batch = len(case.lengths)
        self.lengths = torch.tensor(case.lengths, dtype=torch.int32, device=device)
        l2 = torch.cuda.get_device_properties().L2_cache_size if device == "cuda" else 1
        self.copies = max(min(-(-L2_FILLS * l2 // case.kv_bytes), 64), 1)
        self.q = [self.normal(batch, 1, HEADS) for _ in range(self.copies)]
        self.made: dict[int, tuple[list[tuple[torch.Tensor, ...]], torch.Tensor]] = {}
        self.kv = [tuple(self.normal(batch, case.room, KV_HEADS) for _ in range(2)) for _ in range(self.copies)]

    def normal(self, *shape: int) -> torch.Tensor:
        size = (*shape, HEAD_DIM)
        return torch.randn(size, generator=self.generator, device=self.device, dtype=torch.bfloat16)

    def contiguous(self, own: Any) -> list[Launch]:
        lengths = {"kv_lens": self.lengths} if self.case.ragged else {}
        return [partial(own, q, *kv, layout="bshd", **lengths) for q, kv in zip(self.q, self.kv, strict=True)]

    def paged(self, own: Any, page: int) -> list[Launch]:
        pools, block_table = self.pools(page)
        given = {"kv_lens": self.lengths, "block_table": block_table, "layout": "bshd"}
        return [partial(own, q, *kv, **given) for q, kv in zip(self.q, pools, strict=True)]

    def pools(self, page: int) -> tuple[list[tuple[torch.Tensor, ...]], torch.Tensor]:
        """Pools [pages, page, 8, 128] for each copy, and the table of all."""
        if page not in self.made:
            self.made[page] = self._in_pages(page)
        return self.made[page]

    def _in_pages(self, page: int) -> tuple[list[tuple[torch.Tensor, ...]], torch.Tensor]:
        blocks = [-(-length // page) for length in self.case.lengths]
        numbers = torch.randperm(sum(blocks), generator=self.generator, device=self.device)
        block_table = torch.full((len(blocks), self.case.room // page), -1, dtype=torch.int32, device=self.device)
        found = [tuple(self.normal(sum(blocks), page, KV_HEADS) for _ in range(2)) for _ in self.kv]
        for b, own in enumerate(torch.split(numbers, blocks)):
            block_table[b, : len(own)] = own.int()
            for pair, dense in zip(found, self.kv, strict=True):
                for pool, rows in zip(pair, dense, strict=True):
                    pool[own] = rows[b, : len(own) * page].unflatten(0, (-1, page))
        return found, block_table

    def error(self, out: torch.Tensor) -> float:
        """||out - oracle|| / ||oracle|| of the last head of the last sequence, the oracle in fp64."""
        length = self.case.lengths[-1]
        q = self.q[0][-1, :, -1].double()
        k, v = (x[-1, :length, -1].double() for x in self.kv[0])
        oracle = (q @ k.T / math.sqrt(HEAD_DIM)).softmax(-1) @ v
        return float((out[-1, :, -1].double() - oracle).norm() / oracle.norm())


def prepare(tiles: str, pages: list[int]) -> None:
    """Compiles the kernels of some tiles."""
    own = kernel(tiles)
    if pages:
        Problem(Case("smallest", (64,), 64)).paged(own, 64)[0]()


def measure(case: Case, tiles: list[str], pages: list[int], rounds: int) -> list[dict[str, Any]]:
    problem = Problem(case)
    graphs: dict[str, Launch] = {}
    for name in tiles:
        own = kernel(name)
        kinds: dict[str, Callable[[], list[Launch]]] = {"contiguous": partial(problem.contiguous, own)}
        kinds |= {f"pages of {page}": partial(problem.paged, own, page) for page in pages}
        graphs |= {f"{name}, {kind}": graph_of(calls()) for kind, calls in kinds.items()}
    found = {name: launch() for name, launch in graphs.items()}
    check(case, {name: problem.error(out) for name, out in found.items()}, 2e-2)
    other = [
        name for name, out in found.items() if not torch.equal(out, found[f"{name.partition(',')[0]}, contiguous"])
    ]
    if other:
        print(f"{case}: not the bits of contiguous keys: {'; '.join(other)}", flush=True)
    timings = compare(graphs, rounds=rounds, window_ms=25, sustained_s=0.05)
    rows = []
    for name, timing in timings.items():
        chosen, _, kind = name.partition(", ")
        us = timing.milliseconds / problem.copies * 1e3
        rate = case.kv_bytes / us * 1e-6
        row = {"case": case.name, "tiles": chosen, "keys": kind, "us": us, "spread": timing.spread, "tb_per_s": rate}
        rows.append(row)
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """Microseconds: a line for each case and tiles."""
    kinds = list(dict.fromkeys(row["keys"] for row in rows))
    lines = []
    for case, chosen in dict.fromkeys((row["case"], row["tiles"]) for row in rows):
        own = {row["keys"]: row for row in rows if (row["case"], row["tiles"]) == (case, chosen)}
        rate = f"{own['contiguous']['tb_per_s']:.2f}"
        lines.append((case, chosen, rate, *(f"{own[kind]['us']:.1f}" if kind in own else "-" for kind in kinds)))
    return table(("case", "tiles", "TB/s", *kinds), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES), help="; ".join(CASES))
    parser.add_argument("--tiles", type=lambda text: text.split(","), default=[])
    parser.add_argument("--pages", type=lambda text: [int(item) for item in text.split(",") if item], default=[64, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    tiles = [CHOSEN, *options.tiles]
    prepare(CHOSEN, options.pages)  # the forward kernels, too, which all have
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: prepare(name, options.pages), tiles))
    cases = [CASES[name] for name in options.cases]
    record("pages", cases, lambda case: measure(case, tiles, options.pages, options.rounds), summary, options.out)


if __name__ == "__main__":
    main()
