"""One query over caches of 8 bits, beside the same over 16 bits: microseconds, bytes of K and V a second, ratios.

    python -m benchmarks.cache_8bit [--cases NAMES] [--kv-dtypes e4m3,int8] [--page 64] [--tiles 64x5,128x3]
        [--rounds 5] [--out FOLDER]

bf16 q, head dim 128, no mask, scales for each sequence and key head, or with `--page` for each page and key head.
`--tiles` adds our kernels of 8 bits with so many keys a tile and so many stages, to see what the choice is worth. As in
`benchmarks.decode`, each candidate is a CUDA graph of calls on copies that fill the L2 cache four times over, and is
first compared with fp64 attention over the same numbers, on one head. All cases take about half a minute.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.schedule.schedule import Schedule

from .decode import CASES, HEAD_DIM, Case, _target
from .forward import SPECS, names
from .measure import RESULTS, check, compare, graph_of, record, table

TORCH_DTYPES = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "int8": torch.int8}
LARGEST = {"e4m3": 448.0, "int8": 127.0}
DEFAULT_CASES = ("32/8 B1 8192", "32/8 B1 131072", "32/8 B16 8192", "32/8 B64 1024", "64/8 B16 8192")

Tile = tuple[int, int] | None  # keys and stages; None: what a user gets
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Candidate:
    kv_dtype: str
    tile: Tile = None

    def __str__(self) -> str:
        return self.kv_dtype if self.tile is None else f"{self.kv_dtype} {self.tile[0]}x{self.tile[1]}"

    def kernel(self) -> Any:
        settings = () if self.tile is None else (("block_kv", (self.tile[0],)), ("stages", (self.tile[1],)))
        schedule = None if self.tile is None else Schedule("tiles", "full", "decode", _target(), settings)
        return attncc.compile(SPECS / "full.attn", dtype="bf16", head_dim=HEAD_DIM, arch=_target(), schedule=schedule)

    def kv_bytes(self, case: Case) -> int:
        return case.kv_bytes // (1 if self.kv_dtype == "bf16" else 2)


def problem(case: Case, candidate: Candidate, page: int | None, seed: int) -> Tensors:
    """The arguments of a call. Numbers are about as large as a quantiser makes those of a normal cache."""
    generator = torch.Generator("cuda").manual_seed(seed)
    rows = page or case.kv_len
    caches = case.batch * case.kv_len // rows
    q = torch.randn((case.batch, case.heads, 1, HEAD_DIM), generator=generator, device="cuda", dtype=torch.bfloat16)
    given = {"q": q}
    if page is not None:
        pages = torch.randperm(caches, generator=generator, device="cuda").int()
        given["block_table"] = pages.reshape(case.batch, -1)
        given["kv_lens"] = torch.full((case.batch,), case.kv_len, device="cuda", dtype=torch.int32)
    for name in "kv":
        numbers = torch.randn(
            (caches, case.kv_heads, rows, HEAD_DIM), generator=generator, device="cuda", dtype=torch.bfloat16
        )
        if candidate.kv_dtype != "bf16":
            unit = LARGEST[candidate.kv_dtype] / 5
            numbers = (numbers * unit).clamp(-5 * unit, 5 * unit)
            given[f"{name}_scale"] = torch.full((caches, case.kv_heads), 1 / unit, device="cuda")
            numbers = numbers.round() if candidate.kv_dtype == "int8" else numbers
        given[name] = numbers.to(TORCH_DTYPES[candidate.kv_dtype])
    return given


def relative_error(out: torch.Tensor, given: Tensors) -> float:
    """||out - oracle|| / ||oracle|| over the last head of the last sequence, the oracle in fp64 of the same numbers."""

    def rows(name: str) -> torch.Tensor:
        places = given["block_table"][-1].long() if "block_table" in given else torch.tensor([-1], device="cuda")
        scale = given[f"{name}_scale"][places, -1].double()[:, None, None] if f"{name}_scale" in given else 1.0
        return (given[name][places, -1].double() * scale).flatten(0, 1)

    q, k, v = given["q"][-1, -1].double(), rows("k"), rows("v")
    oracle = (q @ k.T / math.sqrt(HEAD_DIM)).softmax(-1) @ v
    return float((out[-1, -1].double() - oracle).norm() / oracle.norm())


def measure(case: Case, candidates: list[Candidate], page: int | None, rounds: int) -> list[dict[str, Any]]:
    """One row for each candidate; times are of one call."""
    graphs: dict[str, Callable[[], torch.Tensor]] = {}
    errors, copies = {}, {}
    for candidate in candidates:
        count = min(case.copies * case.kv_bytes // candidate.kv_bytes(case), 64)
        given = [problem(case, candidate, page, seed) for seed in range(count)]
        kernel, name = candidate.kernel(), str(candidate)
        graphs[name], copies[name] = graph_of([partial(kernel, **each) for each in given]), count
        errors[name] = relative_error(graphs[name](), given[0])
    check(case, errors, 2e-2)
    timings = compare(graphs, rounds=rounds, window_ms=30, sustained_s=0.1)
    found = []
    for candidate in candidates:
        name = str(candidate)
        milliseconds = timings[name].milliseconds / copies[name]
        found.append({
            "case": str(case),
            **asdict(case),
            "page": page,
            "candidate": name,
            "copies": copies[name],
            "milliseconds": milliseconds,
            "tb_per_s": candidate.kv_bytes(case) / milliseconds * 1e-9,
            "relative_error": errors[name],
        })  # fmt: skip
    return found


def summary(rows: list[dict[str, Any]]) -> str:
    """Microseconds (TB/s, times the speed of bf16) of each candidate."""
    columns = list(dict.fromkeys(row["candidate"] for row in rows))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["candidate"]: row for row in rows if row["case"] == case}
        lines.append((case, *(_figures(found[name], found["bf16"]) for name in columns)))
    return table(("us (TB/s, x bf16)", *columns), lines)


def _figures(row: dict[str, Any], wide: dict[str, Any]) -> str:
    ratio = wide["milliseconds"] / row["milliseconds"]
    return f"{row['milliseconds'] * 1e3:.1f} ({row['tb_per_s']:.2f}, {ratio:.2f})"


def _tile(text: str) -> tuple[int, int]:
    keys, stages = text.split("x")
    return int(keys), int(stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=lambda text: text.split(","), default=DEFAULT_CASES, help="; ".join(CASES))
    parser.add_argument("--kv-dtypes", type=names, default=("e4m3", "int8"))
    parser.add_argument("--page", type=int)
    parser.add_argument("--tiles", type=lambda text: [_tile(item) for item in text.split(",")], default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    tiles: list[Tile] = [None, *options.tiles]
    candidates = [Candidate("bf16"), *(Candidate(name, tile) for name in options.kv_dtypes for tile in tiles)]
    first = next(iter(CASES.values()))
    with ThreadPoolExecutor() as pool:  # compiles all kernels beside each other
        list(pool.map(lambda item: item.kernel()(**problem(first, item, options.page, 0)), candidates))
    record(
        "cache_8bit",
        [CASES[name] for name in options.cases],
        lambda case: measure(case, candidates, options.page, options.rounds),
        summary,
        options.out,
    )


if __name__ == "__main__":
    main()
