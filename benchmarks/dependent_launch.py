"""Decode calls whose blocks begin while the kernel ahead ends, beside the same calls that wait for its end.

    python -m benchmarks.dependent_launch [--cases NAMES] [--peers cudnn] [--rounds 7] [--out FOLDER]

bf16 normal inputs, head dim 128, no mask, as `benchmarks.decode` times them: CUDA graphs of calls on copies that fill
the L2 cache four times over, microseconds of one call.

- `late`: the kernel's text and its launch as they are without programmatic dependent launch;
- `unasked`: the new text, launched as ever: what waiting and letting others begin costs by itself;
- `early`: the new text, launched early: what users get.

Cases in "lengths" bring `kv_lens`, so blocks wait before they look for their run. In cases "behind a copy" a kernel of
torch, which lets nobody begin, writes the last key before each call: as a model's step does. There the copy is timed
too. All three must give the same bits, and hold against fp64 attention; nothing is timed that is wrong.

All cases take about 20 s on an H200.
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import attncc
from attncc.runtime.call import prepare
from attncc.schedule.schedule import Schedule
from attncc.schedule.target import TARGETS

from .decode import HEAD_DIM, L2_FILLS, Case, peer_graph
from .flex import Launch, Tensors
from .forward import SPECS, names, relative_error
from .measure import RESULTS, check, compare, graph_of, record, table
from .peers import PEERS, taking

FORMS = ("late", "unasked", "early")
WINDOW_MS, SUSTAINED_S = 20, 0.05
LEAST_COPIES, MOST_COPIES = 4, 256


@dataclass(frozen=True)
class EarlyCase(Case):
    lengths: bool = False
    behind_copy: bool = False

    @property
    def copies(self) -> int:
        """Some at least, so that calls follow each other in a graph."""
        wanted = L2_FILLS * torch.cuda.get_device_properties().L2_cache_size
        return int(min(max(-(-wanted // self.kv_bytes), LEAST_COPIES), MOST_COPIES))

    def __str__(self) -> str:
        return super().__str__() + ", lengths" * self.lengths + ", behind a copy" * self.behind_copy


_PLAIN = [
    EarlyCase(*heads, batch, kv_len)
    for heads in ((32, 8), (8, 1))
    for batch in (1, 8)
    for kv_len in (1024, 8192, 32768)
]
_OTHERS = [
    EarlyCase(32, 8, 1, kv_len, **{what: True}) for kv_len in (1024, 8192) for what in ("lengths", "behind_copy")
]
CASES = {str(case): case for case in (*_PLAIN, *_OTHERS)}


def form(name: str) -> AbstractContextManager[Any]:
    """Kernels that are made, and calls that are prepared, have this form meanwhile."""
    if name == "late":
        return patch.dict(TARGETS, {"sm_90a": replace(TARGETS["sm_90a"], dependent_launch=False)})
    return patch.object(prepare, "EARLY", None) if name == "unasked" else nullcontext()


def kernel(name: str) -> Any:
    """A kernel of its own for each form: schedules that say nothing, under different names."""
    schedule = Schedule(name, "full", "decode", "sm_90a", ())
    return attncc.compile(SPECS / "full.attn", dtype="bf16", head_dim=HEAD_DIM, arch="sm_90a", schedule=schedule)


def call(own: Any, case: EarlyCase, qkv: Tensors) -> Launch:
    q, k, v = qkv
    given = (
        {"kv_lens": torch.full((case.batch,), case.kv_len, dtype=torch.int32, device="cuda")} if case.lengths else {}
    )
    last, row = k[:, :, -1:], k[:, :, -1:].clone()

    def launch() -> torch.Tensor:
        if case.behind_copy:
            last.copy_(row)
        return own(q, k, v, **given)

    return launch


def graphs_of(case: EarlyCase, problems: list[Tensors]) -> dict[str, Launch]:
    found = {}
    for name in FORMS:
        with form(name):
            found[name] = graph_of([call(kernel(name), case, qkv) for qkv in problems])
    return found


def measure(case: EarlyCase, peers: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """One row for each form and peer; times are of one call."""
    problems = case.tensors()
    graphs = graphs_of(case, problems)
    results = {name: launch().clone() for name, launch in graphs.items()}
    if not all(torch.equal(results["late"], result) for result in results.values()):
        raise SystemExit(f"{case}: the forms differ in their bits, nothing is timed")
    if not case.behind_copy and not case.lengths:
        graphs |= taking({PEERS[peer][0]: partial(peer_graph, peer, problems) for peer in peers})
    check(case, {name: relative_error(launch(), problems[0], causal=False) for name, launch in graphs.items()}, 2e-2)
    timings = compare(graphs, rounds=rounds, window_ms=WINDOW_MS, sustained_s=SUSTAINED_S)
    calls = len(problems)
    return [
        {
            "case": str(case), **asdict(case), "candidate": name, "copies": calls,
            "microseconds": timing.milliseconds / calls * 1e3, "spread": timing.spread,
            "windows": [window / calls * 1e3 for window in timing.windows],
            "sm_clock_mhz": timing.sm_clock_mhz,
        }
        for name, timing in timings.items()
    ]  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> str:
    """Microseconds of each candidate, and early's share of late."""
    columns = list(dict.fromkeys(row["candidate"] for row in rows))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["candidate"]: row["microseconds"] for row in rows if row["case"] == case}
        shown = [f"{found[name]:.2f}" if name in found else "-" for name in columns]
        lines.append((case, *shown, f"{found['early'] / found['late']:.3f}"))
    return table(("us", *columns, "early / late"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), help="; ".join(CASES))
    parser.add_argument("--peers", type=names, default="", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if torch.cuda.get_device_capability() != (9, 0):
        raise SystemExit("kernels begin early on sm_90 alone")
    record(
        "dependent_launch",
        [CASES[name] for name in options.cases],
        lambda case: measure(case, options.peers, options.rounds),
        summary,
        options.out,
    )


if __name__ == "__main__":
    main()
