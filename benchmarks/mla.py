"""Absorbed MLA over caches: microseconds, bytes of latents a second, and FLOP/s, of both kernels of wide heads.

    python -m benchmarks.mla [--cases NAMES] [--candidates default,wide] [--flashmla LIBRARY] [--rounds 7]
                             [--out FOLDER]
    python -m benchmarks.mla --cases serving --candidates default,anywhere,one_team,slack_12 --flashmla LIBRARY

bf16 normal inputs, head dim 576, V is the first 512 columns of K. Names of cases end with `known` where the host knows
the lengths; with `equal` and `spread` they are on the device (`kv_lens`), the latter from half to one and a half times
the number; `pages` are of 64 keys. Candidates: a family of kernels; or how thread blocks share out keys (teams.cuh):
`anywhere`, runs that end anywhere, as they all did before 2026-11-28 where lengths are on the device; `one_team`,
without teams, as where the host knew them; `slack_N`, runs that may be N tiles longer to end with items. --flashmla:
FlashMLA, over pages, from sglang-kernel's flashmla_ops.abi3.so; its schedule is made once, outside of the times.

TB/s count the latents once, whatever is read of them; FLOP/s count 2 (576 + 512) for each pair. Each candidate is a
CUDA graph of calls on copies of the problem that fill the L2 cache four times over, so latents come from HBM and host
time is not in it. Every candidate is first compared with fp64 attention on one head. The cases without a name take
about 30 s, `serving` about 50, the compilation of kernels included.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.kernels.hopper_wide.facts import HopperWide
from attncc.schedule.schedule import Schedule

from .decode import L2_FILLS
from .flex import Launch
from .forward import SPECS
from .measure import RESULTS, Timing, check, compare, graph_of, record, table

ROW, LATENTS = 576, 512
SCORE_COLUMNS = 192  # the head dim before K's projection is absorbed: 128 and 64 of RoPE. `mla_decode` scales by it
TARGET = "sm_90a"
FAMILIES = ("default", "hopper_wide", "wide")
PAGE = 64


@dataclass(frozen=True)
class Case:
    heads: int
    batch: int
    kv_len: int
    q_len: int = 1
    lengths: str = "known"  # or on the device: equal, spread
    pages: bool = False

    @property
    def kv_lens(self) -> list[int]:
        if self.lengths != "spread":
            return [self.kv_len] * self.batch
        chosen = random.Random(self.batch)
        return [chosen.randint(self.kv_len // 2, self.kv_len * 3 // 2) for _ in range(self.batch)]

    @property
    def keys(self) -> int:
        return sum(self.kv_lens)

    @property
    def kv_bytes(self) -> int:
        return self.keys * ROW * 2

    @property
    def flops(self) -> int:
        """Of all pairs: the mask leaves out one of `q_len` at the end alone."""
        return 2 * self.heads * self.q_len * self.keys * (ROW + LATENTS)

    def __str__(self) -> str:
        where = "" if self.lengths == "known" else f" {self.lengths}"
        return f"{self.heads} heads q{self.q_len} B{self.batch} {self.kv_len}{where}{' pages' * self.pages}"

    def calls(self) -> list[Call]:
        """One for each copy of the problem, all with one table of pages."""
        generator = torch.Generator("cuda").manual_seed(self.kv_len)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, ROW, generator=generator, device="cuda", dtype=torch.bfloat16)

        lens, room = self.kv_lens, -(-max(self.kv_lens) // PAGE)
        table = torch.randperm(self.batch * room, device="cuda", generator=generator).reshape(self.batch, room)
        wanted = L2_FILLS * torch.cuda.get_device_properties().L2_cache_size
        shape = self.batch * room, PAGE
        return [
            Call(self, normal(self.batch, self.heads, self.q_len), normal(*shape), table.int(), lens)
            for _ in range(max(-(-wanted // self.kv_bytes), 1))
        ]


@dataclass
class Call:
    """q [batch, heads, q_len, 576], the latents in pages [page, 64, 576], the table of pages [batch, blocks]."""

    case: Case
    q: torch.Tensor
    pool: torch.Tensor
    table: torch.Tensor
    lens: list[int]

    def __post_init__(self) -> None:
        self.used = torch.tensor(self.lens, dtype=torch.int32, device="cuda")
        rows = self.pool if self.case.pages else self.pool[self.table.flatten()].reshape(self.case.batch, -1, ROW)
        self.k = rows[:, None] if self.case.pages else rows[:, None, : max(self.lens)]
        if self.case.lengths == "known" and not self.case.pages:
            self.arguments: dict[str, torch.Tensor] = {}
        else:
            self.arguments = {"kv_lens": self.used} | ({"block_table": self.table} if self.case.pages else {})

    def launch(self, kernel: Any) -> Launch:
        return partial(kernel, self.q, self.k, self.k[..., :LATENTS], **self.arguments)

    def oracle(self) -> torch.Tensor:
        """Of the last query of the last head, which sees all keys, in fp64."""
        k = self.pool[self.table[-1]].flatten(0, 1)[: self.lens[-1]].double()
        return (self.q[-1, -1, -1:].double() @ k.T / SCORE_COLUMNS**0.5).softmax(-1) @ k[:, :LATENTS]


def _cases() -> Iterator[Case]:
    for batch, kv_len in ((1, 32768), (16, 8192), (64, 4096)):
        yield Case(128, batch, kv_len)
    yield from (Case(128, 16, 8192, 2), Case(16, 16, 8192), Case(16, 16, 8192, 2), Case(16, 1, 32768, 2))


def _serving() -> Iterator[Case]:
    """What lengths on the device cost, and pages."""
    for batch, kv_len in ((1, 32768), (16, 8192), (64, 4096), (128, 4096)):
        yield Case(128, batch, kv_len)
        yield Case(128, batch, kv_len, lengths="equal", pages=True)
        if batch > 1:
            yield Case(128, batch, kv_len, lengths="spread", pages=True)
    yield Case(128, 16, 8192, lengths="equal")
    yield Case(128, 64, 8192, 2, lengths="equal", pages=True)


NAMED = {"all": list(_cases()), "serving": list(_serving())}
CASES = {str(case): case for cases in NAMED.values() for case in cases}


# -------------------------------------------------------------------- candidates


@cache
def kernel(candidate: str) -> Any:
    """As a user gets it, or with the forward kernel of a family. A candidate's own: each prepares its calls once."""
    settings = () if candidate not in FAMILIES[1:] else (("family", (candidate,)),)
    schedule = Schedule("family", "mla_decode", "forward", TARGET, settings)
    spec = SPECS / "mla_decode.attn"
    made = attncc.compile(spec, dtype="bf16", head_dim=ROW, value_head_dim=LATENTS, arch=TARGET, schedule=schedule)
    return type(made)(made.store)  # not the one that all have who compile the same


@contextmanager
def sharing_out(candidate: str) -> Iterator[None]:
    """While calls are prepared: the fields of a launch that say how thread blocks share out keys."""
    slack = int(candidate.removeprefix("slack_")) if candidate.startswith("slack_") else None
    changed: dict[str, int] = {"anywhere": {"teams": 1, "run_slack": -1}, "one_team": {"teams": 1}}.get(candidate, {})
    changed |= {} if slack is None else {"run_slack": slack}
    before = HopperWide.shared_out
    HopperWide.shared_out = lambda self, *given: before(self, *given) | changed  # type: ignore[method-assign]
    try:
        yield
    finally:
        HopperWide.shared_out = before  # type: ignore[method-assign]


def graph(candidate: str, calls: list[Call]) -> Launch:
    with sharing_out(candidate):
        return graph_of([call.launch(kernel(candidate)) for call in calls])


def flash_mla(calls: list[Call]) -> Launch:
    """Its schedule is found by its first call, for all."""
    run, causal = torch.ops.sgl_kernel.dense_decode_fwd.default, calls[0].case.q_len > 1
    queries = [call.q.transpose(1, 2).contiguous() for call in calls]
    schedule: list[Any] = [None, None]

    def launch(q: torch.Tensor, call: Call) -> torch.Tensor:
        out, _, *found = run(
            q, call.pool[:, :, None], LATENTS, call.used, call.table, SCORE_COLUMNS**-0.5, causal, *schedule
        )
        if schedule[0] is None:
            schedule[:] = found
        return out.transpose(1, 2)

    launch(queries[0], calls[0])
    return graph_of([partial(launch, q, call) for q, call in zip(queries, calls, strict=True)])


def measure(case: Case, candidates: tuple[str, ...], flashmla: bool, rounds: int) -> list[dict[str, Any]]:
    """One row for each candidate; times are of one call."""
    calls = case.calls()
    graphs = {name: graph(name, calls) for name in candidates}
    if flashmla:
        graphs["flashmla"] = flash_mla(calls)
    oracle = calls[0].oracle()
    errors = {
        name: float((launch()[-1, -1, -1:].double() - oracle).norm() / oracle.norm()) for name, launch in graphs.items()
    }
    check(case, errors, 2e-2)
    timings = compare(graphs, rounds=rounds, window_ms=40, sustained_s=0.1)
    return [_row(case, name, timings[name], errors[name], len(calls)) for name in graphs]


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


def _chosen(text: str) -> list[Case]:
    return [case for name in text.split(",") for case in NAMED.get(name) or [CASES[name]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=_chosen, default=NAMED["all"], help="; ".join((*NAMED, *CASES)))
    parser.add_argument("--candidates", type=lambda text: tuple(text.split(",")), default=("default", "wide"))
    parser.add_argument("--flashmla", metavar="LIBRARY", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.flashmla is not None:
        torch.ops.load_library(options.flashmla)
    record(
        "mla",
        options.cases,
        lambda case: measure(case, options.candidates, options.flashmla is not None, options.rounds),
        summary,
        options.out,
    )


if __name__ == "__main__":
    main()
