"""e4m3 against our own bf16, and FlashAttention-3's e4m3 if asked, at useful FLOPs.

    python -m benchmarks.fp8 [--head-dims 64,128,256] [--lengths 16384] [--masks full,causal]
                             [--tiles 128:128x160,128:192x96,256:128x96] [--peers fa3] [--rounds 5] [--out FOLDER]

Normal inputs, 16,384 tokens, num_heads * head_dim about 2048; e4m3 takes the same numbers, rounded, without descales.
`--tiles` adds kernels with tiles of their own, HEAD_DIM:BLOCK_QxBLOCK_KV, beside the default. Each is first compared
with fp64 attention of its own inputs on one head. A peer runs once before our kernels are compiled.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.schedule.schedule import Schedule

from .flex import Launch, Tensors
from .forward import SPECS, Case, names, relative_error
from .measure import RESULTS, Timing, check, compare, record, table, tflops
from .peers import PEERS
from .peers import launches as peer_launches

Tile = tuple[int, int, int]  # head dim, block_q, block_kv
LIMITS = {"bf16": 1e-2, "e4m3": 6e-2}  # relative errors


def kernel(case: Case, dtype: str, tile: Tile | None) -> Callable[..., torch.Tensor]:
    schedule = None
    if tile is not None:
        settings = ("block_q", (tile[1],)), ("block_kv", (tile[2],))
        schedule = Schedule("measured", case.spec, "forward", "sm_90a", settings)
    spec = SPECS / f"{case.spec}.attn"
    return attncc.compile(spec, dtype=dtype, head_dim=case.head_dim, arch="sm_90a", schedule=schedule)


def candidates(case: Case, tiles: list[Tile]) -> dict[str, tuple[str, Tile | None]]:
    """By name: a dtype, and a tile other than the default."""
    own = [tile for tile in tiles if tile[0] == case.head_dim]
    found: dict[str, tuple[str, Tile | None]] = {"bf16": ("bf16", None), "e4m3": ("e4m3", None)}
    return found | {f"e4m3 {tile[1]}x{tile[2]}": ("e4m3", tile) for tile in own}


def inputs(case: Case) -> dict[str, Tensors]:
    """q, k, v by their dtypes."""
    q, k, v = case.tensors()
    narrow = torch.float8_e4m3fn
    return {"bf16": (q, k, v), "e4m3": (q.to(narrow), k.to(narrow), v.to(narrow))}


def measure(case: Case, tiles: list[Tile], peers: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    tensors = inputs(case)
    launches: dict[str, Launch] = {}
    errors: dict[str, float] = {}
    for name, (dtype, tile) in candidates(case, tiles).items():
        found, qkv = kernel(case, dtype, tile), tensors[dtype]
        errors[name] = relative_error(found(*qkv), qkv, case.causal)
        check(case, {name: errors[name]}, LIMITS[dtype])
        launches[name] = _launch(found, qkv)
    for name, launch in peer_launches(peers, tensors["e4m3"], case.causal).items():
        errors[name] = relative_error(launch(), tensors["e4m3"], case.causal)
        check(case, {name: errors[name]}, LIMITS["e4m3"])
        launches[name] = launch
    timings = compare(launches, rounds=rounds)
    return [_row(case, name, timings[name], errors[name]) for name in launches]


def _launch(found: Callable[..., torch.Tensor], qkv: Tensors) -> Launch:
    return lambda: found(*qkv)


def _row(case: Case, name: str, timing: Timing, error: float) -> dict[str, Any]:
    return {
        "case": str(case),
        "candidate": name,
        **tflops(case.useful_flops, timing),
        "clock_mhz": timing.sm_clock_mhz,
        "watts": timing.watts,
        "error": error,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """TFLOP/s of the windows / sustained, and how they stand to bf16."""
    lines = []
    for row in rows:
        wide = next(other for other in rows if other["case"] == row["case"] and other["candidate"] == "bf16")
        ratios = (row[kind] / wide[kind] for kind in ("tflops", "sustained_tflops"))
        figures = f"{row['tflops']:.0f} / {row['sustained_tflops']:.0f}"
        clock = "-" if row["clock_mhz"] is None else f"{row['clock_mhz']:.0f} MHz {row['watts']:.0f} W"
        lines.append((row["case"], row["candidate"], figures, clock, f"{row['error']:.1e}", *ratios))
    return table(("case", "", "TFLOP/s windows / sustained", "clock", "error", "x bf16", "sustained"), lines)


def parsed_tiles(text: str) -> list[Tile]:
    """`128:192x96` as a head dim and a tile."""
    found = []
    for item in names(text):
        head_dim, _, tile = item.partition(":")
        block_q, _, block_kv = tile.partition("x")
        found.append((int(head_dim), int(block_q), int(block_kv)))
    return found


def _ints(text: str) -> list[int]:
    return [int(item) for item in names(text)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head-dims", type=_ints, default="64,128,256")
    parser.add_argument("--lengths", type=_ints, default="16384")
    parser.add_argument("--masks", type=names, default="full,causal")
    parser.add_argument("--tiles", type=parsed_tiles, default="")
    parser.add_argument("--peers", type=names, default="", help=f"that take e4m3, of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    cases = [
        Case(*item) for item in product(options.head_dims, options.lengths, [m == "causal" for m in options.masks])
    ]
    peer_launches(options.peers, inputs(cases[0])["e4m3"], cases[0].causal)
    wanted = [(case, *how) for case in cases for how in candidates(case, options.tiles).values()]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda item: kernel(*item), wanted))
    record("fp8", cases, lambda case: measure(case, options.tiles, options.peers, options.rounds), summary, options.out)


if __name__ == "__main__":
    main()
