"""One attention on all GPUs of a machine beside one GPU: `python -m benchmarks.shared_attention`. Needs two or more.

For each mask: the time of one GPU for the whole sequence over that of all together, times their number: 1 if nothing is
lost. Forward, and both passes. `exchanged`: the time of the exchange alone, as a share of the call's. Medians of
interleaved runs. `--rows 256 --device cpu` tries the script with two processes and gloo.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import attncc
import attncc.distributed as shared
from attncc.distributed.launches import Options

HEADS, DIM = (32, 8), 128
RUNS = {"cuda": (2, 7), "cpu": (0, 1)}  # before, and measured
MASKS: dict[str, tuple[str, dict[str, Any], bool]] = {  # spec, consts, whether packed
    "causal": ("causal", {}, False),
    "window 4096": ("sliding_window", {"width": 4096}, False),
    "documents": ("causal", {}, True),
    "full": ("full", {}, False),
}


def lengths_of(rows: int, packed: bool) -> Any:
    """Documents of lognormal lengths, a median of 3000."""
    if not packed:
        return rows
    rng, found = np.random.default_rng(0), list[int]()
    while sum(found) < rows:
        found.append(min(int(np.clip(rng.lognormal(8, 1.2), 16, rows)), rows - sum(found)))
    return found


class Bench:
    def __init__(self, rank: int, ranks: int, rows: int, device: str) -> None:
        self.rank, self.ranks, self.rows, self.device = rank, ranks, rows, device

    def milliseconds(self, call: Callable[[], Any]) -> float:
        dist.barrier()
        self._wait()
        start = time.perf_counter()
        call()
        self._wait()
        return (time.perf_counter() - start) * 1e3

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def row(self, name: str) -> str:
        spec, consts, packed = MASKS[name]
        kernel = attncc.compile(spec, dtype="bf16", head_dim=DIM, **consts)
        lengths = lengths_of(self.rows, packed)
        sizes: dict[str, Any] = {"ranks": self.ranks, "heads": HEADS, "head_dim": DIM, "batch": None if packed else 1}
        cp = shared.shard(kernel, plan=shared.plan(kernel, lengths, **sizes))
        lead = () if packed else (1,)
        whole = [
            torch.randn(*lead, heads, self.rows, DIM).bfloat16().to(self.device)
            for heads in (HEADS[0], HEADS[1], HEADS[1])
        ]
        starts = torch.tensor(cp.plan.lengths.q_starts, dtype=torch.int32, device=self.device)
        more = {"cu_seqlens_q": starts, "cu_seqlens_kv": starts} if packed else {}
        own, options = [cp.shard(x, -2) for x in whole], Options({}, None, "bhsd", None)

        def exchange() -> None:
            cp.exchange(own[1], options).fetch(*own[1:]).wait()

        calls = {
            "one": lambda: kernel(*whole, **more),
            "all": lambda: cp(*own),
            "exchange": exchange,
            "one, both": lambda: _both(kernel, whole, more),
            "all, both": lambda: _both(cp, own, {}),
        }
        spent: dict[str, list[float]] = {name: [] for name in calls}
        before, measured = RUNS[self.device]
        for _ in range(before + measured):
            for kind, call in calls.items():
                alone = kind.startswith("one") and self.rank > 0
                spent[kind].append(self.milliseconds((lambda: None) if alone else call))
        found = {kind: median(times[before:]) for kind, times in spent.items()}
        forward, both = (found[f"one{end}"] / found[f"all{end}"] / self.ranks for end in ("", ", both"))
        share = found["exchange"] / found["all"]
        return f"{name:14}{found['all']:9.2f} ms  {forward:6.3f}  {both:6.3f}  {share:9.3f}"


def _both(call: Any, operands: list[Any], more: dict[str, Any]) -> None:
    leaves = [x.detach().requires_grad_() for x in operands]
    out = call(*leaves, **more)
    out.backward(torch.ones_like(out))


def process(rank: int, ranks: int, rows: int, device: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    if device == "cuda":
        os.environ |= {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
        torch.cuda.set_device(rank)
    backend = {"cuda": "nccl", "cpu": "gloo"}[device]
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    bench = Bench(rank, ranks, rows, device)
    for name in MASKS:
        text = bench.row(name)
        if rank == 0:
            print(text, flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=16384, help="of the whole sequence")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args()
    ranks = torch.cuda.device_count() if given.device == "cuda" else 2
    if ranks < 2:
        parser.error("needs two GPUs, or --device cpu")
    print(f"{'mask':14}{'all together':>12}  {'forward':>6}  {'both':>6}  {'exchanged':>9}   ({ranks} {given.device})")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(process, (ranks, given.rows, given.device, folder), nprocs=ranks)


if __name__ == "__main__":
    main()
