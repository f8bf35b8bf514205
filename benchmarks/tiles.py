"""Every legal tile of a grid of candidates, compiled, checked and timed: what the default tiles are chosen from.

    python -m benchmarks.tiles [--head-dims 64,128] [--lengths 4096,16384] [--keep 12] [--out FOLDER]

Candidates that don't fit the target or spill registers are left out. All others are timed in short windows; the best
`--keep` of each case, and what attncc would take by itself, are timed again beside FlashAttention-2 (SDPA).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend

import attncc
from attncc import AttnccError
from attncc.codegen.render import render
from attncc.compiler import load_specification
from attncc.runtime.cache import compile_cached
from attncc.runtime.device import best_target
from attncc.runtime.nvrtc import Resources
from attncc.schedule.plan import KernelPlan
from attncc.schedule.schedule import Schedule, make_plan
from attncc.schedule.target import TARGETS

from .forward import SPECS, Case, Tensors, relative_error, sdpa
from .measure import RESULTS, compare, table, write

KNOBS = {"block_q": (64, 128, 192, 256), "block_kv": (32, 48, 64, 96, 128), "warps": (4, 8), "stages": (1, 2, 3)}
DEFAULT = "default"
DTYPE = "bf16"  # of `Case.tensors`


@dataclass(frozen=True)
class Candidate:
    """A kernel of one spec, head dim and choice of tiles."""

    name: str
    plan: KernelPlan
    resources: Resources
    kernel: Callable[..., Any]

    def launch(self, qkv: Tensors) -> Callable[[], torch.Tensor]:
        return lambda: self.kernel(*qkv)


def target_here() -> str:
    major, minor = torch.cuda.get_device_capability()
    plain = [name for name, target in TARGETS.items() if not target.exact]
    found = best_target(plain, 10 * major + minor)
    if found is None:
        raise SystemExit(f"there is no target for compute capability {major}.{minor}")
    return found


def candidates(spec: str, head_dim: int) -> list[Candidate]:
    """All that fit and don't spill, compiled on every core at once; the default choice first."""
    settings: list[dict[str, int]] = [{}]
    settings += [dict(zip(KNOBS, values, strict=True)) for values in product(*KNOBS.values())]
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda item: candidate(spec, head_dim, item), settings)
        return [item for item in found if item is not None]


def candidate(spec: str, head_dim: int, settings: dict[str, int]) -> Candidate | None:
    target, path = target_here(), SPECS / f"{spec}.attn"
    variant = load_specification(path, None, {})[0].variant
    given = tuple((name, (value,)) for name, value in settings.items())
    schedule = Schedule("candidate", variant.name, "forward", target, given)
    try:
        plan = make_plan(
            variant, dtype=DTYPE, head_dim=head_dim, value_head_dim=head_dim, target=target, schedule=schedule
        )
    except AttnccError:
        return None
    source = render(plan)
    resources = compile_cached(source.text, target, f"{source.name}.cu").resources
    if settings and resources.spill_stores + resources.spill_loads:
        return None
    kernel = attncc.compile(path, dtype=DTYPE, head_dim=head_dim, arch=target, schedule=schedule)
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
    again = {name: launches[name] for name in best} | {"FA2 (SDPA)": sdpa(SDPBackend.FLASH_ATTENTION)(qkv, case.causal)}
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
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--lengths", default="4096,16384")
    parser.add_argument("--keep", type=int, default=12)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for head_dim, spec in product(map(int, options.head_dims.split(",")), ("full", "causal")):
        found = candidates(spec, head_dim)
        print(f"{spec} D{head_dim}: {len(found)} candidates", flush=True)
        for length in map(int, options.lengths.split(",")):
            measured = measure(Case(head_dim, length, spec == "causal"), found, options.keep)
            shown = [(row["tflops"], row["registers"], row["spills"], row["tiles"]) for row in measured]
            print(f"{measured[0]['case']}\n{table(('TFLOP/s', 'registers', 'spills', 'tiles'), shown)}", flush=True)
            rows += measured
    print(write("tiles", rows, options.out))


if __name__ == "__main__":
    main()
