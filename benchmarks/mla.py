"""Absorbed MLA over caches: microseconds, bytes of latents a second, and FLOP/s, of both kernels of wide heads.

    python -m benchmarks.mla [--cases NAMES] [--families default,wide] [--rounds 7] [--out FOLDER]

bf16 normal inputs, head dim 576, V is the first 512 columns of K. TB/s count the latents once, whatever is read of
them; FLOP/s count 2 (576 + 512) for each pair. Each candidate is a CUDA graph of calls on copies of the problem that
fill the L2 cache four times over, so latents come from HBM and host time is not in it. Every candidate is first
compared with fp64 attention on one head. All cases take about 30 s, the compilation of kernels included.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.schedule.schedule import Schedule

from .decode import L2_FILLS, graph_of
from .flex import Tensors
from .forward import SPECS
from .measure import RESULTS, Timing, check, compare, record, table

ROW, LATENTS = 576, 512
SCORE_COLUMNS = 192  # the head dim before K's projection is absorbed: 128 and 64 of RoPE. `mla_decode` scales by it
TARGET = "sm_90a"
FAMILIES = ("default", "hopper_wide", "wide")


@dataclass(frozen=True)
class Case:
    heads: int
    batch: int
    kv_len: int
    q_len: int = 1

    @property
    def kv_bytes(self) -> int:
        return self.batch * self.kv_len * ROW * 2

    @property
    def flops(self) -> int:
        """Of all pairs: the mask leaves out one of `q_len` at the end alone."""
        return 2 * self.batch * self.heads * self.q_len * self.kv_len * (ROW + LATENTS)

    def __str__(self) -> str:
        return f"{self.heads} heads q{self.q_len} B{self.batch} {self.kv_len}"

    def tensors(self) -> list[Tensors]:
        """q [batch, heads, q_len, 576], k [batch, 1, kv_len, 576] and its first columns, for each copy."""
        generator = torch.Generator("cuda").manual_seed(self.kv_len)

        def normal(heads: int, length: int) -> torch.Tensor:
            shape = self.batch, heads, length, ROW
            return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

        wanted = L2_FILLS * torch.cuda.get_device_properties().L2_cache_size
        problems = []
        for _ in range(max(-(-wanted // self.kv_bytes), 1)):
            k = normal(1, self.kv_len)
            problems.append((normal(self.heads, self.q_len), k, k[..., :LATENTS]))
        return problems


CASES = {
    str(case): case
    for case in (
        Case(128, 1, 32768), Case(128, 16, 8192), Case(128, 64, 4096), Case(128, 16, 8192, 2),
        Case(16, 16, 8192), Case(16, 16, 8192, 2), Case(16, 1, 32768, 2),
    )
}  # fmt: skip


@cache
def kernel(family: str) -> Any:
    """As a user gets it, or with the forward kernel of a family."""
    settings = () if family == "default" else (("family", (family,)),)
    schedule = Schedule("family", "mla_decode", "forward", TARGET, settings)
    spec = SPECS / "mla_decode.attn"
    return attncc.compile(spec, dtype="bf16", head_dim=ROW, value_head_dim=LATENTS, arch=TARGET, schedule=schedule)


def relative_error(out: torch.Tensor, qkv: Tensors) -> float:
    """||out - oracle|| / ||oracle|| over the last query of the last head, which sees all keys; the oracle in fp64."""
    q, k, v = (item[-1, -1].double() for item in qkv)
    oracle = (q[-1:] @ k.T / SCORE_COLUMNS**0.5).softmax(-1) @ v
    return float((out[-1, -1, -1:].double() - oracle).norm() / oracle.norm())


def measure(case: Case, families: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """One row for each candidate; times are of one call."""
    problems = case.tensors()
    graphs = {family: graph_of([partial(kernel(family), *qkv) for qkv in problems]) for family in families}
    errors = {name: relative_error(launch(), problems[0]) for name, launch in graphs.items()}
    check(case, errors, 2e-2)
    timings = compare(graphs, rounds=rounds, window_ms=40, sustained_s=0.1)
    return [_row(case, name, timings[name], errors[name], len(problems)) for name in graphs]


def _row(case: Case, name: str, timing: Timing, error: float, calls: int) -> dict[str, Any]:
    milliseconds = timing.milliseconds / calls
    return {
        "case": str(case),
        **asdict(case),
        "candidate": name,
        "copies": calls,
        **asdict(timing),
        "milliseconds": milliseconds,
        "windows": [window / calls for window in timing.windows],
        "sustained_milliseconds": timing.sustained_milliseconds / calls,
        "tb_per_s": case.kv_bytes / milliseconds * 1e-9,
        "tflops": case.flops / milliseconds * 1e-9,
        "relative_error": error,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Microseconds (TB/s, TFLOP/s) of each candidate."""
    columns = list(dict.fromkeys(row["candidate"] for row in rows))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["candidate"]: row for row in rows if row["case"] == case}
        lines.append((case, *(_figures(found[name]) for name in columns)))
    return table(("us (TB/s, TFLOP/s)", *columns), lines)


def _figures(row: dict[str, Any]) -> str:
    return f"{row['milliseconds'] * 1e3:.1f} ({row['tb_per_s']:.2f}, {row['tflops']:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES), help="; ".join(CASES))
    parser.add_argument("--families", type=lambda text: tuple(text.split(",")), default=("default", "wide"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with ThreadPoolExecutor() as pool:
        list(pool.map(kernel, options.families))
    record(
        "mla",
        [CASES[name] for name in options.cases],
        lambda case: measure(case, options.families, options.rounds),
        summary,
        options.out,
    )


if __name__ == "__main__":
    main()
