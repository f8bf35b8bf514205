"""Where the time of a shared call goes: `python -m benchmarks.shared_profile FOLDER`. Needs two GPUs or more.

For each mask and pass: the time of a call, how much of it the host takes, and how long the same launches take with K
and V already there. Then a timeline of one call on each rank, in microseconds, as torch.profiler saw it: kernels and
copies by stream, and what the host did. `--backend gloo --tiny` tries it without GPUs.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import os
import pstats
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from attncc.distributed.call_parts import Options
from attncc.distributed.launches import Saved, ToBackward
from attncc.distributed.transport import Fetched

from .shared_units import MASKS, NO_MULTICAST, TIMED, Settings, Units, _gradients

Tensor = Any
CALLS = 5  # of a measurement
SHOWN = 120  # lines of a timeline
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


class Kept:
    """Gradients of K and V that go nowhere."""

    def start(self, group: int, found: Sequence[tuple[Tensor, Tensor]]) -> None:
        pass

    def add(self, group: int, dk: Tensor, dv: Tensor) -> None:
        pass


class Profile:
    """Of one process."""

    def __init__(self, own: Units, folder: Path) -> None:
        self.own, self.folder = own, folder

    def mask(self, name: str) -> None:
        own, rows = self.own, self.own.settings.rows
        _, cp, given, _ = own.shared(MASKS[name], rows)
        whole = own.drawn(MASKS[name], rows)
        local = [cp.shard(x, -2, of=of) for x, of in zip(whole, ("q", "kv", "kv", "q"), strict=True)]
        calls: dict[str, Callable[[], Any]] = {
            "forward": lambda: cp(*local[:3], **given),
            "both": lambda: _gradients(cp, local, given),
            **self.computing(cp, whole, local, given),
        }
        with self.file("times").open("a") as file:
            for label, call in calls.items():
                print(f"{name:12} {label:22} {self.times(call)}", file=file, flush=True)
            print(f"{name:12} groups {cp.mask.groups} {cp.mask.groups_back}, runs {self.runs(cp)}", file=file)
        for label in ("forward", "both"):
            self.timeline(f"{name} {label}", calls[label])
            self.host(f"{name} {label}", calls[label])

    def computing(self, cp: Any, whole: list[Tensor], local: list[Tensor], given: dict[str, Any]) -> dict[str, Any]:
        """The launches alone, with K and V of all rows there: in the plan's groups of heads, and of all at once."""
        options = Options(given, None, "bhsd", None)
        launches = cp.launches(local[0].device)
        q, k, v, dout = local[0], whole[1], whole[2], local[3]
        out, lse = launches.forward(q, Fetched(k, v, ((0, k.shape[-3]),), None), options)
        known, back = Saved(q, k, v, out, lse), ToBackward(dout, None)
        found: dict[str, Any] = {}
        for label, groups, groups_back in (
            ("planned", cp.mask.groups, cp.mask.groups_back),
            ("at once", (k.shape[-3],), (k.shape[-3],)),
        ):
            heads, heads_back = (cp._heads(k, options, some) for some in (groups, groups_back))
            found[f"compute {label}"] = lambda heads=heads: launches.forward(q, Fetched(k, v, heads, None), options)
            found[f"compute back {label}"] = lambda heads=heads_back: launches.backward(
                known, Fetched(k, v, heads, None), back, options, Kept(), repeats=False
            )
        return found

    def runs(self, cp: Any) -> list[str]:
        (launches,) = cp._launches.values()
        return [
            f"{kind} {name} {run.begin}-{run.end}"
            for kind, runs in (("forward", launches._runs), ("back", launches._runs_back))
            for name, some in runs._asdict().items()
            for run in some
        ]

    def times(self, call: Callable[[], Any]) -> str:
        """Of a call among others without waiting, and of one that is waited for; the host's part of both."""
        for _ in range(3):
            call()
        found = []
        for calls in (CALLS, 1, 1):
            self.own.wait()
            dist.barrier()
            self.own.wait()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            host = time.perf_counter() - start
            self.own.wait()
            found += [host * 1e3 / calls, (time.perf_counter() - start) * 1e3 / calls]
        return "ms a call {1:7.3f} host {0:6.3f}; alone {5:7.3f} host {4:6.3f}".format(*found)

    def timeline(self, name: str, call: Callable[[], Any]) -> None:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        activities += [ProfilerActivity.CUDA] if self.own.device.type == "cuda" else []
        trace = self.folder / f"trace{self.own.rank}.json"
        with profile(activities=activities) as prof:
            call()
            self.own.wait()
            dist.barrier()
            self.own.wait()
            with torch.profiler.record_function("THE CALL"):
                call()
                call()
                self.own.wait()
        prof.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
        trace.unlink()
        with self.file("timeline").open("a") as file:
            print(f"== {name}", *_lines(events), sep="\n", file=file, flush=True)

    def host(self, name: str, call: Callable[[], Any]) -> None:
        found = cProfile.Profile()
        found.enable()
        for _ in range(3):
            call()
        found.disable()
        self.own.wait()
        if self.own.rank:
            return
        text = io.StringIO()
        pstats.Stats(found, stream=text).sort_stats("tottime").print_stats(22)
        with self.file("host").open("a") as file:
            kept = [line[:150] for line in text.getvalue().splitlines() if line.strip()]
            print(f"== {name}, three calls", *kept, sep="\n", file=file, flush=True)

    def file(self, kind: str) -> Path:
        return self.folder / f"{kind}{self.own.rank}.txt"


def _lines(events: list[dict[str, Any]]) -> Iterator[str]:
    """What ran on the GPU and the host between begin and end of the call, equal neighbours joined."""
    (call,) = [item for item in events if item.get("name") == "THE CALL" and item.get("cat") == "user_annotation"][:1]
    begin, end = call["ts"], call["ts"] + call["dur"]
    kinds = (*ON_GPU, "cuda_runtime", "cuda_driver", "cpu_op")
    inside = [item for item in events if item.get("ph") == "X" and item.get("cat") in kinds]
    inside = sorted((item for item in inside if begin <= item["ts"] <= end), key=lambda item: item["ts"])
    on_gpu = [item for item in inside if item["cat"] in ON_GPU]
    yield f"{end - begin:.0f} us for two calls; {len(on_gpu)} items on the GPU"
    busy: dict[str, float] = {}
    for item in on_gpu:
        busy[_name(item)] = busy.get(_name(item), 0) + item["dur"]
    yield from (f"   sum {spent:9.0f} us {name}" for name, spent in sorted(busy.items(), key=lambda x: -x[1])[:12])
    last: dict[Any, float] = {}
    for item in on_gpu[:SHOWN]:
        args, start = item.get("args", {}), item["ts"] - begin
        stream = args.get("stream")
        gap = start - last.get(stream, start)
        last[stream] = start + item["dur"]
        grid = "x".join(map(str, args.get("grid", []))) or str(args.get("bytes", ""))
        yield f"{start:9.0f} {item['dur']:8.0f} s{stream} gap {gap:6.0f} {grid:12} {_name(item)}"
    names: dict[str, list[float]] = {}
    for item in inside:
        if item["cat"] not in ON_GPU:
            names.setdefault(item["name"], []).append(item["dur"])
    largest = sorted(names.items(), key=lambda x: -sum(x[1]))[:14]
    yield "   host: " + ", ".join(f"{name} {len(spent)}x {sum(spent):.0f}" for name, spent in largest)


def _name(item: dict[str, Any]) -> str:
    return str(item["name"]).replace("void ", "").replace("at::native::", "")[:70]


def process(rank: int, ranks: int, settings: Settings, names: list[str], folder: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(4 if settings.device == "cuda" else 1)
    more: dict[str, Any] = {}
    if settings.device == "cuda":
        torch.cuda.set_device(rank)
        more = {"device_id": torch.device("cuda", rank)}
    meeting = f"file://{settings.folder}/meeting"
    dist.init_process_group(settings.backend, init_method=meeting, rank=rank, world_size=ranks, **more)
    own = Units(settings, rank, ranks)
    own.compile()
    profile = Profile(own, Path(folder))
    for name in names:
        profile.mask(name)
        if rank == 0:
            print(f"{name}: written", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--rows", type=int, default=32768)
    parser.add_argument("--masks", default=",".join(TIMED))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.environ |= NO_MULTICAST
    ranks = torch.cuda.device_count() if given.backend == "nccl" else 2
    with tempfile.TemporaryDirectory() as made:
        tiny = Settings.tiny(given.backend, made)
        settings = tiny if given.tiny else Settings(given.backend, made, given.rows, checked=4096, runs=1)
        torch.multiprocessing.spawn(process, (ranks, settings, given.masks.split(","), str(given.folder)), nprocs=ranks)


if __name__ == "__main__":
    main()
