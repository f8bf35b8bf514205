"""The forward pass under masks and score changes against FlexAttention, at useful FLOPs.

    python -m benchmarks.masks [--cases causal,natten] [--families portable,hopper] [--tiles 128x64x4] [--without-flex]
                               [--out FOLDER]

bf16, head dim 128, 16 heads, 8,192 tokens, batch 2. FlexAttention is compiled, its block mask made beforehand and not
counted; of a few block sizes the fastest counts, and its FLASH back end is a candidate of its own where it runs. Every
candidate is first compared with fp64 attention on one head. TFLOP/s are useful ones: 4 * head_dim for each kept pair.
`--tiles` adds candidates of the family hopper, block_q x block_kv x stages, or of the other: `portable:128x64x2`. With
`x4` behind it, so many warps share a tile.

Processes that run one case each fill Inductor's cache first, all at once; what is timed is compiled in this process.
One call of FlexAttention and one of cuDNN run here before our kernels are compiled, as in a user's process.
`--without-flex` times our kernels alone, in a few seconds a case, where nothing else ran.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.schedule.schedule import Schedule

from . import flex, peers
from .flex import Launch, Mod, Tensors
from .measure import RESULTS, Timing, check, compare, table, tflops, write

SPECS = Path(__file__).resolve().parent.parent / "specs"
BATCH, HEADS, LENGTH, HEAD_DIM = 2, 16, 8192, 128
TARGETS = {"portable": "sm_90", "hopper": "sm_90a"}

_SIZES = "block_q", "block_kv", "stages", "warps"

SOFTCAP_FULL = """attn 1

variant softcap_full {
    const cap: float = 30.0

    score = cap * tanh(score / cap)
}
"""


@dataclass(frozen=True)
class Case:
    """A variant as attncc and as FlexAttention have it; `mods` gives mask_mod and score_mod, or None for them."""

    name: str
    spec: Path | str
    mods: Callable[[], tuple[Mod | None, Mod | None]]
    defines: Mapping[str, int | float] = field(default_factory=dict)
    inputs: Callable[[], dict[str, torch.Tensor]] = dict
    pass_name: str = "forward"  # whose tiles are chosen

    def kernel(self, candidate: str) -> Callable[..., torch.Tensor]:
        """Of a family, or with tiles of `block_q`x`block_kv`x`stages`, hopper's where no family is named."""
        named, _, tiles = candidate.rpartition(":")
        family = candidate if candidate in TARGETS else named or "hopper"
        sizes = () if family == candidate else zip(_SIZES, map(int, tiles.split("x")), strict=False)
        settings: dict[str, int | str] = {"family": family, **dict(sizes)}
        given = tuple((name, (value,)) for name, value in settings.items())
        name = attncc.parse(self.spec, defines=self.defines).name
        schedule = Schedule(candidate, name, self.pass_name, TARGETS[family], given)
        return attncc.compile(
            self.spec, dtype="bf16", head_dim=HEAD_DIM, arch=TARGETS[family], defines=self.defines, schedule=schedule
        )


def causal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q >= kv


@cache
def documents(count: int = 12) -> torch.Tensor:
    """The document of each position, i32 [length]: `count` documents of random lengths."""
    generator = torch.Generator().manual_seed(0)
    cuts = torch.randperm(LENGTH - 1, generator=generator)[: count - 1].sort().values + 1
    return torch.bucketize(torch.arange(LENGTH), cuts, right=True).to(torch.int32).cuda()


@cache
def slopes() -> torch.Tensor:
    return torch.exp2(-8 * torch.arange(1, HEADS + 1, device="cuda") / HEADS).float()


def softcap(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    return 30.0 * torch.tanh(score / 30.0)


def documents_mods() -> tuple[Mod, None]:
    doc = documents()
    return lambda b, h, q, kv: (q >= kv) & (doc[q] == doc[kv]), None


def alibi_mods() -> tuple[Mod, Mod]:
    slope = slopes()
    return causal, lambda score, b, h, q, kv: score - slope[h] * (q - kv)


def natten_mods(width: int, height: int, kernel: int) -> tuple[Mod, None]:
    reach = kernel // 2

    def keep(b: Any, h: Any, q: Any, kv: Any) -> Any:
        x = torch.clamp(q % width, reach, width - 1 - reach) - kv % width
        y = torch.clamp(q // width, reach, height - 1 - reach) - kv // width
        return (x.abs() <= reach) & (y.abs() <= reach)

    return keep, None


CASES = (
    Case("causal", SPECS / "causal.attn", lambda: (causal, None)),
    Case(
        "window 1024",
        SPECS / "sliding_window.attn",
        lambda: (lambda b, h, q, kv: (q >= kv) & (q - kv < 1024), None),
        {"width": 1024},
    ),
    Case(
        "12 documents",
        SPECS / "documents.attn",
        documents_mods,
        inputs=lambda: {"doc": documents().expand(BATCH, LENGTH).contiguous()},
    ),
    Case(
        "prefix-LM 2048",
        SPECS / "prefix_lm.attn",
        lambda: (lambda b, h, q, kv: (kv < 2048) | (q >= kv), None),
        inputs=lambda: {"prefix_len": torch.full((BATCH,), 2048, dtype=torch.int32, device="cuda")},
    ),
    Case(
        "NATTEN 13x13 on 64x128",
        SPECS / "natten.attn",
        lambda: natten_mods(64, 128, 13),
        {"canvas_width": 64, "canvas_height": 128, "kernel": 13},
        pass_name="patches",
    ),
    Case(
        "dilated by 4 in window 4096",
        SPECS / "dilated_window.attn",
        lambda: (lambda b, h, q, kv: (q >= kv) & (q - kv < 4096) & ((q - kv) % 4 == 0), None),
        {"width": 1024, "step": 4},
        pass_name="patches",
    ),
    Case("ALiBi causal", SPECS / "alibi.attn", alibi_mods, inputs=lambda: {"slope": slopes()}),
    Case("softcap 30 causal", SPECS / "softcap.attn", lambda: (causal, softcap), {"cap": 30.0}),
    Case("softcap 30 full", SOFTCAP_FULL, lambda: (None, softcap)),
)


def tensors() -> Tensors:
    """q, k, v [batch, heads, length, head_dim], bf16, normal."""
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (BATCH, HEADS, LENGTH, HEAD_DIM)
    q, k, v = (torch.randn(shape, generator=generator, device="cuda").bfloat16() for _ in range(3))
    return q, k, v


@dataclass(frozen=True)
class Oracle:
    """The last head of the last sequence in fp64, and how many pairs a head keeps."""

    out: torch.Tensor
    kept: int

    @classmethod
    def of(cls, case: Case, qkv: Tensors) -> Oracle:
        q, k, v = (item[-1, -1].double() for item in qkv)
        keep, change = case.mods()
        place = (
            BATCH - 1,
            HEADS - 1,
            torch.arange(LENGTH, device="cuda")[:, None],
            torch.arange(LENGTH, device="cuda"),
        )
        score = q @ k.T / math.sqrt(HEAD_DIM)
        if change is not None:
            score = change(score, *place)
        kept = LENGTH**2
        if keep is not None:
            mask = keep(*place)
            score, kept = score.masked_fill_(~mask, -math.inf), int(mask.sum())
        return cls(score.softmax(-1) @ v, kept)

    @property
    def useful_flops(self) -> float:
        return 4.0 * HEAD_DIM * self.kept * BATCH * HEADS

    def relative_error(self, out: torch.Tensor) -> float:
        return float((out[-1, -1].double() - self.out).norm() / self.out.norm())


def flex_candidates(case: Case, qkv: Tensors) -> tuple[dict[str, Launch], str]:
    """FlexAttention's fastest Triton kernel, and its FLASH back end where it runs; the setting of the fastest."""
    mods = case.mods()
    triton = flex.compiled_calls(qkv, *mods, flex.TRITON)
    best = flex.fastest(triton)
    calls = {"FlexAttention": triton[best]}
    flash = flex.compiled_calls(qkv, *mods, flex.FLASH)
    return calls | {f"FlexAttention {name}": call for name, call in flash.items()}, best


def measure(
    case: Case, kernels: Mapping[str, Callable[..., torch.Tensor]], qkv: Tensors, *, with_flex: bool
) -> list[dict[str, Any]]:
    """One row for each candidate."""
    oracle, inputs = Oracle.of(case, qkv), case.inputs()
    launches: dict[str, Launch] = {
        f"attncc {family}": lambda kernel=kernel: kernel(*qkv, **inputs)  # type: ignore[misc]
        for family, kernel in kernels.items()
    }
    theirs, setting = flex_candidates(case, qkv) if with_flex else ({}, "-")
    launches |= theirs
    errors = {name: oracle.relative_error(launch()) for name, launch in launches.items()}
    check(case.name, errors, 1e-2)
    timings = compare(launches, rounds=7, window_ms=50, sustained_s=0.4)
    return [_row(case, oracle, name, timings[name], errors[name]) | {"flex_setting": setting} for name in launches]


def _row(case: Case, oracle: Oracle, name: str, timing: Timing, error: float) -> dict[str, Any]:
    return {
        "case": case.name,
        "density": oracle.kept / LENGTH**2,
        "candidate": name,
        **tflops(oracle.useful_flops, timing),
        "relative_error": error,
        **asdict(timing),
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """ms and useful TFLOP/s of the windows, and how often as fast as FlexAttention's best back end each family is."""
    names = list(dict.fromkeys(row["candidate"] for row in rows))
    ours = [name for name in names if name.startswith("attncc")]
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["candidate"]: row for row in rows if row["case"] == case}
        shown = [f"{found[n]['milliseconds']:.3f} / {found[n]['tflops']:.0f}" if n in found else "-" for n in names]
        peer = min((row["milliseconds"] for name, row in found.items() if name not in ours), default=math.nan)
        ratios = [f"{peer / found[name]['milliseconds']:.2f}" for name in ours]
        setting, clock = found[ours[-1]]["flex_setting"], found[ours[-1]]["sm_clock_mhz"]
        lines.append((case, *shown, *ratios, setting, f"{clock:.0f} MHz"))
    header = ("ms / TFLOP/s", *names, *(f"{name} x Flex" for name in ours), "Flex blocks", "our clock")
    return table(header, lines)


def fill_inductor_cache(cases: list[Case]) -> None:
    """One process a case, all at once: what Triton compiles is then found on disk."""
    command = [sys.executable, "-m", "benchmarks.masks", "--only-compile-flex"]
    processes = [
        subprocess.Popen([*command, case.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for case in cases
    ]
    for process in processes:
        process.wait()


def run(cases: list[Case], candidates: list[str], folder: Path, *, with_flex: bool) -> None:
    if with_flex:
        peers.launches(("cudnn",), tensors(), causal=True)  # each runs once
        flex.compiled_calls(tensors(), *cases[0].mods(), flex.TRITON[:1])
    with ThreadPoolExecutor(8) as pool:
        building: dict[tuple[str, str], Future[Any]] = {
            (case.name, candidate): pool.submit(case.kernel, candidate) for case in cases for candidate in candidates
        }
        if with_flex:
            fill_inductor_cache(cases)
    kernels = {key: future.result() for key, future in building.items()}
    qkv, rows = tensors(), []
    for case in cases:
        found = measure(case, {name: kernels[case.name, name] for name in candidates}, qkv, with_flex=with_flex)
        print(summary(found), flush=True)
        rows += found
    path = write("masks", rows, folder)
    print(f"{path}\n{summary(rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="parts of their names, with commas between; all if none is given")
    parser.add_argument("--families", default="portable,hopper")
    parser.add_argument("--without-flex", action="store_true", help="our kernels alone")
    parser.add_argument("--tiles", default="", help="further candidates, as 128x64x4,portable:128x48x2")
    parser.add_argument("--only-compile-flex", metavar="CASE", help="fills Inductor's cache, and measures nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    wanted = options.cases.casefold().split(",")
    cases = [case for case in CASES if any(part in case.name.casefold() for part in wanted)]
    flex.allow_many_variants()
    if options.only_compile_flex is not None:
        case = next(case for case in CASES if case.name == options.only_compile_flex)
        flex.compiled_calls(tensors(), *case.mods(), flex.TRITON + flex.FLASH)
    else:
        candidates = [name for name in f"{options.families},{options.tiles}".split(",") if name]
        run(cases, candidates, options.out, with_flex=not options.without_flex)


if __name__ == "__main__":
    main()
