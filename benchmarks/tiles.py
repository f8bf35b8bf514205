"""Every legal tile of a grid of candidates, compiled, checked and timed: what the default tiles are chosen from.

    python -m benchmarks.tiles [--family hopper] [--head-dims 64,128,192:128] [--lengths 4096,16384]
                               [--masks full,causal] [--keep 12] [--out FOLDER]

Candidates that don't fit the target, or for which ptxas spills registers or serialises products, are left out. All
others are timed in short windows; the best `--keep` of each case, and what attncc would take by itself, are timed again
beside FlashAttention-2 (SDPA), where that takes the head dims.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import attncc
from attncc import AttnccError
from attncc.codegen.render import render
from attncc.compiler import load_specification
from attncc.kernels.candidates import make_plan
from attncc.runtime.cuda.nvrtc import Resources
from attncc.runtime.store.cache import compile_cached
from attncc.schedule.plan import KernelPlan
from attncc.schedule.schedule import Schedule

from .flex import Launch, Tensors
from .forward import SPECS, Case, head_dims, names, our_target, relative_error
from .measure import RESULTS, compare, table, write
from .peers import launches as peer_launches

KNOBS = {
    "portable": {"block_q": (64, 128, 192, 256), "block_kv": (32, 48, 64, 96), "warps": (4, 8), "stages": (1, 2, 3)},
    "hopper": {"block_q": (128, 192, 256), "block_kv": (48, 64, 80, 96, 112, 128, 144, 160, 176), "stages": (2, 3, 4)},
}  # fmt: skip
DEFAULT = "default"
DTYPE = "bf16"  # of `Case.tensors`


@dataclass(frozen=True)
class Candidate:
    """A kernel of one spec, head dim and choice of tiles."""

    name: str
    plan: KernelPlan
    resources: Resources
    kernel: Callable[..., Any]

    def launch(self, qkv: Tensors) -> Launch:
        return lambda: self.kernel(*qkv)


def candidates(case: Case, family: str) -> list[Candidate]:
    """All that fit and don't spill, compiled on every core at once; the default choice first."""
    knobs = KNOBS[family]
    settings: list[dict[str, int]] = [{}]
    settings += [dict(zip(knobs, values, strict=True)) for values in product(*knobs.values())]
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda item: candidate(case, family, item), settings)
        return [item for item in found if item is not None]


def candidate(case: Case, family: str, settings: dict[str, int]) -> Candidate | None:
    target, path = "sm_90a" if family == "hopper" else our_target(), SPECS / f"{case.spec}.attn"
    variant = load_specification(path, None, {})[0].variant
    chosen: dict[str, int | str] = {"family": family, **settings}
    given = tuple((name, (value,)) for name, value in chosen.items())
    schedule = Schedule("candidate", variant.name, "forward", target, given)
    keys, values = case.head_dim, case.values
    try:
        plan = make_plan(variant, dtype=DTYPE, head_dim=keys, value_head_dim=values, target=target, schedule=schedule)
    except AttnccError:
        return None
    source = render(plan)
    resources = compile_cached(source.text, target, f"{source.name}.cu").resources
    if settings and (resources.spill_stores + resources.spill_loads or resources.messages):
        return None
    kernel = attncc.compile(path, dtype=DTYPE, head_dim=keys, value_head_dim=values, arch=target, schedule=schedule)
    tiles = f"{plan.block_q}x{plan.block_kv} w{plan.warps} s{plan.stages}"
    return Candidate(tiles if settings else f"{DEFAULT} {tiles}", plan, resources, kernel)


def measure(case: Case, found: list[Candidate], keep: int) -> list[dict[str, Any]]:
    """Rows of the best candidates and of FlashAttention-2, fastest first."""
    qkv = case.tensors()
    launches = {item.name: item.launch(qkv) for item in found}
    for name, launch in launches.items():
        error = relative_error(launch(), qkv, case.causal)
        if not error < 1e-2:
            raise SystemExit(f"{case}, {name}: wrong result, relative error {error}")
    quick = compare(launches, rounds=3, window_ms=15, sustained_s=0)
    best = sorted(launches, key=lambda name: quick[name].milliseconds)[:keep]
    best += [name for name in launches if name.startswith(DEFAULT) and name not in best]
    again = {name: launches[name] for name in best} | peer_launches(("fa2",), qkv, case.causal)
    timings = compare(again, rounds=7, window_ms=40, sustained_s=0.2)
    resources = {item.name: item.resources for item in found}
    rows = [
        {
            "case": str(case),
            "tiles": name,
            "tflops": case.useful_flops / timing.milliseconds * 1e-9,
            "registers": resources[name].registers if name in resources else None,
            "spills": resources[name].spill_stores if name in resources else None,
            **asdict(timing),
        }
        for name, timing in timings.items()
    ]
    return sorted(rows, key=lambda row: -float(row["tflops"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=tuple(KNOBS), default="portable")
    parser.add_argument("--head-dims", type=head_dims, default="64,128")
    parser.add_argument("--lengths", type=lambda text: [int(item) for item in text.split(",")], default="4096,16384")
    parser.add_argument("--masks", type=names, default="full,causal")
    parser.add_argument("--keep", type=int, default=12)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for (keys, values), mask in product(options.head_dims, options.masks):
        cases = [Case(keys, length, mask == "causal", values) for length in options.lengths]
        found = candidates(cases[0], options.family)
        print(f"{mask} D{keys}: {len(found)} candidates", flush=True)
        for case in cases:
            measured = measure(case, found, options.keep)
            shown = [(row["tflops"], row["registers"], row["spills"], row["tiles"]) for row in measured]
            print(f"{case}\n{table(('TFLOP/s', 'registers', 'spills', 'tiles'), shown)}", flush=True)
            rows += measured
    print(write("tiles", rows, options.out))


if __name__ == "__main__":
    main()
