"""One query over many keys: bytes of K and V a second, against SDPA's back ends.

    python -m benchmarks.decode [--cases NAMES] [--peers fa2,cudnn,fa4] [--splits N,N] [--rounds 9] [--out FOLDER]

bf16 normal inputs, head dim 128, no mask. TB/s count K and V once, whatever is read of them. Each candidate is a CUDA
graph of calls on copies of the problem that fill the L2 cache four times over, so keys come from HBM and host time is
not in it; what stands between two kernels of one call is. Every candidate is first compared with fp64 attention on one
head. `--splits` adds our kernel with so many splits, to see what the choice is worth.

A case takes about 2 s for each candidate (nine rounds).
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.schedule.schedule import Schedule

from .flex import Launch, Tensors
from .forward import SPECS, names, our_target, relative_error
from .measure import RESULTS, Timing, check, compare, graph_of, record, table
from .peers import PEERS, taking

HEAD_DIM = 128
L2_FILLS = 4
MOST_COPIES = 64


@dataclass(frozen=True)
class Case:
    heads: int
    kv_heads: int
    batch: int
    kv_len: int

    @property
    def kv_bytes(self) -> int:
        return 2 * self.batch * self.kv_heads * self.kv_len * HEAD_DIM * 2

    @property
    def copies(self) -> int:
        """Problems whose keys and values are beyond the L2 cache when they come up again."""
        wanted = L2_FILLS * torch.cuda.get_device_properties().L2_cache_size
        return int(min(max(-(-wanted // self.kv_bytes), 1), MOST_COPIES))

    def __str__(self) -> str:
        return f"{self.heads}/{self.kv_heads} B{self.batch} {self.kv_len}"

    def tensors(self) -> list[Tensors]:
        """q [batch, heads, 1, 128], k and v [batch, kv_heads, kv_len, 128], for each copy."""
        generator = torch.Generator("cuda").manual_seed(self.kv_len)

        def normal(heads: int, length: int) -> torch.Tensor:
            return torch.randn(
                (self.batch, heads, length, HEAD_DIM), generator=generator, device="cuda", dtype=torch.bfloat16
            )

        return [
            (normal(self.heads, 1), normal(self.kv_heads, self.kv_len), normal(self.kv_heads, self.kv_len))
            for _ in range(self.copies)
        ]


CASES = {
    str(case): case
    for case in (
        Case(32, 8, 1, 1024), Case(32, 8, 1, 8192), Case(32, 8, 1, 131072),
        Case(32, 8, 8, 1024), Case(32, 8, 16, 8192), Case(32, 8, 64, 1024), Case(32, 8, 64, 8192),
        Case(64, 8, 16, 8192), Case(16, 16, 1, 8192), Case(16, 16, 1, 131072), Case(8, 1, 1, 8192),
    )
}  # fmt: skip


def kernel(splits: int | None) -> Any:
    """Our kernel; with a number of splits, or as a user gets it."""
    settings = () if splits is None else (("split_kv", (splits,)),)
    schedule = Schedule("splits", "full", "decode", our_target(), settings)
    return attncc.compile(SPECS / "full.attn", dtype="bf16", head_dim=HEAD_DIM, arch=_target(), schedule=schedule)


def _target() -> str:
    """The family hopper where there is one, for the forward kernel that this must not be mistaken for."""
    return our_target() + "a" * (our_target() == "sm_90")


def sdpa(peer: str, qkv: Tensors) -> Launch:
    """A peer of `peers`; key heads are shared, not repeated."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    if peer == "fa4":
        return PEERS[peer][1](qkv, False)
    backend = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[peer]

    def launch() -> torch.Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(*qkv, enable_gqa=qkv[0].shape[1] != qkv[1].shape[1])

    return launch


def peer_graph(peer: str, problems: list[Tensors]) -> Launch:
    return graph_of([sdpa(peer, qkv) for qkv in problems])


def candidates(problems: list[Tensors], peers: tuple[str, ...], splits: list[int]) -> dict[str, Launch]:
    """Graphs by name."""
    found: dict[str, Launch] = {}
    for count in (None, *splits):
        own = kernel(count)
        name = "attncc" if count is None else f"attncc, {count} splits"
        found[name] = graph_of([partial(own, *qkv) for qkv in problems])
    return found | taking({PEERS[peer][0]: partial(peer_graph, peer, problems) for peer in peers})


def measure(case: Case, peers: tuple[str, ...], splits: list[int], rounds: int) -> list[dict[str, Any]]:
    """One row for each candidate; times are of one call."""
    problems = case.tensors()
    graphs = candidates(problems, peers, splits)
    errors = {name: relative_error(launch(), problems[0], causal=False) for name, launch in graphs.items()}
    check(case, errors, 2e-2)
    timings = compare(graphs, rounds=rounds, sustained_s=0.2)
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
        "relative_error": error,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """TB/s (microseconds) of each candidate, and how ours stands to the best peer."""
    columns = list(dict.fromkeys(row["candidate"] for row in rows))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["candidate"]: row for row in rows if row["case"] == case}
        others = [row["tb_per_s"] for name, row in found.items() if not name.startswith("attncc")]
        ratio = f"{found['attncc']['tb_per_s'] / max(others):.2f}" if others else "-"
        lines.append((case, *(_figures(found[name]) if name in found else "-" for name in columns), ratio))
    return table(("TB/s (us)", *columns, "x best peer"), lines)


def _figures(row: dict[str, Any]) -> str:
    return f"{row['tb_per_s']:.2f} ({row['milliseconds'] * 1e3:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES), help="; ".join(CASES))
    parser.add_argument("--peers", type=names, default="fa2,cudnn", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--splits", type=lambda text: [int(item) for item in text.split(",")], default=[])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with ThreadPoolExecutor() as pool:
        list(pool.map(kernel, (None, *options.splits)))
    record(
        "decode",
        [CASES[name] for name in options.cases],
        lambda case: measure(case, options.peers, options.splits, options.rounds),
        summary,
        options.out,
    )


if __name__ == "__main__":
    main()
