"""One attention on all GPUs of a machine beside one GPU: `python -m benchmarks.shared_attention`. Needs two or more.

First, whether results are right: out and gradients against one GPU for each mask, bytes on the wire against the plan's,
the same bits in 100 runs. Then times, medians of interleaved measurements: one GPU for the whole sequence over all
together, times their number, is 1 if nothing is lost; forward, and backward. Last, beside them in one run, a zigzag
ring on the same kernels (`zigzag_ring.py`) and PyTorch's context parallel (`torch_context_parallel.py`).

Before a measurement the same calls run for a while, untimed: the clock of a GPU at its limit of power depends on what
it did in the last 0.2 s, by a tenth. `--long` measures at other lengths, too.

`--budget` is the seconds that all may take; what comes first is worth most. A unit that fails or hangs costs the start
of new processes, and the others go on. `--tiny --backend gloo` tries all of it on two CPU processes, without a meaning
in its times. `--json PATH` writes what was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .shared_units import MASKS, NO_MULTICAST, TIMED, Settings, process, told

Found = dict[str, dict[str, Any]]  # what was told of each unit; "wrong" and "error" of all ranks

PEERS = (
    *("ring causal", "sdpa causal by cudnn", "flex window 4096", "flex documents", "ring full", "sdpa full by cudnn"),
    *("sdpa causal by flash", "flex causal"),
)
STALL = {"compile": 100.0, "check": 60.0, "flex": 80.0, "": 40.0}  # seconds without a word that may pass
BEGIN = 30.0  # more, until the first


def units(lengths: list[int]) -> list[str]:
    checks = [f"check {name}" for name in MASKS if name != "dropout"]
    long = [f"long {name} at {rows}" for rows in lengths for name in TIMED]
    return ["compile", *checks, *(f"time {name}" for name in TIMED), *long, PEERS[0], "check dropout", *PEERS[1:]]


class Run:
    """Starts processes until all units are done or the time is over."""

    def __init__(
        self, settings: Settings, ranks: int, wanted: list[str], budget: float, keep: Callable[[Found], None]
    ) -> None:
        """`keep` is called after each unit: a run that is cut has what was done."""
        self.settings, self.ranks, self.left, self.keep = settings, ranks, list(wanted), keep
        self.deadline = time.time() + budget
        self.found: Found = {}

    def all(self) -> Found:
        for number in range(8):
            if not self.left or time.time() > self.deadline:
                break
            self._processes(number)
        for name in self.left:
            self.found[name] = {"error": "no time was left"}
        self.keep(self.found)
        return self.found

    def _processes(self, number: int) -> None:
        """Until all end, or one does badly: then its unit is given up."""
        meeting = str(Path(self.settings.folder, f"meeting{number}"))
        given = self.ranks, self.settings, list(self.left), meeting, self.deadline
        context = torch.multiprocessing.get_context("spawn")
        started = [context.Process(target=process, args=(rank, *given)) for rank in range(self.ranks)]
        for each in started:
            each.start()
        failed = self._failed()
        why = self._watched(started)
        for each in started:
            each.kill()
            each.join()
        self._read()
        if why and self.left and self._failed() == failed:  # none said that it failed
            self.found.setdefault(self.left.pop(0), {"error": why})

    def _failed(self) -> int:
        return sum("error" in row for row in self.found.values())

    def _watched(self, started: list[Any]) -> str:
        """Why the unit at work has to be given up; empty if all is done."""
        heard, allowed = time.time(), BEGIN
        while any(each.is_alive() for each in started):
            time.sleep(0.1)
            before = len(self.left)
            self._read()
            if len(self.left) < before:
                heard, allowed = time.time(), 0
            if any(each.exitcode for each in started):
                return "a process ended"
            if time.time() > self.deadline + 5:
                return "no time was left"
            stall = STALL.get(self.left[0].partition(" ")[0] if self.left else "", STALL[""])
            if time.time() - heard > stall + allowed:
                return f"nothing was heard for {stall + allowed:g} s"
        return "a process ended" if any(each.exitcode for each in started) else ""

    def _read(self) -> None:
        """A unit is done when all ranks told of it, or one that it failed."""
        of_ranks = list(told(self.settings.folder, self.ranks))
        for name in list(self.left):
            lines = [line for lines in of_ranks for line in lines if line["unit"] == name]
            failed = [line["error"] for line in lines if "error" in line]
            if not failed and len(lines) < self.ranks:
                continue
            wrong = [f"rank {rank}: {text}" for rank, line in enumerate(lines) for text in line.get("wrong", [])]
            self.found[name] = {**lines[0], "wrong": wrong, **({"error": failed[0]} if failed else {})}
            self.left.remove(name)
            self.keep(self.found)
            print(_line(name, self.found[name]), flush=True)


def _line(name: str, found: dict[str, Any]) -> str:
    took = f"{found['took s']:6.1f} s" if "took s" in found else " " * 8
    return f"{name:24}{took}  {found.get('error') or '; '.join(found.get('wrong', [])) or 'ok'}"


def table(found: Found) -> Iterator[str]:
    """Times; shares of one GPU's speed, and of that of GPUs that compute alone at the same time; the others' times."""
    yield f"{'ms':24}{'one':>8}{'all':>8}  share of each TFLOP/s {'both':>8}{'all':>8}  backward of each TFLOP/s"
    for name, row in found.items():
        if "forward share" in row:
            forward, back = (
                f"{row[f'{kind} share']:.3f}  {row[f'{kind} share of each']:.3f}{row[f'{kind} TFLOP/s a GPU']:8.0f}"
                for kind in ("forward", "backward")
            )
            one, every, one_both, every_both = (
                f"{row[f'{kind} ms']:8.2f}" for kind in ("one", "all", "one both", "all both")
            )
            yield f"{name:24}{one}{every}  {forward} {one_both}{every_both}     {back}  {_beside(row)}"
    for name in PEERS:
        row, ours = found.get(name, {}), found.get(f"time {_mask_of(name)}", {})
        if "all ms" not in row:
            yield f"{name:24}{row.get('error', 'did not run')}"
            continue
        times = [row["all ms"] / ours["all ms"], row["all both ms"] / ours["all both ms"]] if "all ms" in ours else []
        shown = ", ".join(f"{value:.2f}" for value in times)
        yield f"{name:24}{row['all ms']:7.2f}ms forward {row['all both ms']:7.2f}ms both: times ours {shown}"


def _beside(row: dict[str, Any]) -> str:
    """What else was measured of a mask."""
    names = {"each": "each", "each both": "both", "host all": "host", "host all both": "both"}
    names |= {"exchange": "exchange", "collective": "collective", "collective both": "both"}
    shown = [f"{text} {row[f'{name} ms']:.2f}" for name, text in names.items() if f"{name} ms" in row]
    return f"{' '.join(shown)}  {row['transport']} {row['assignment']} {row['groups']}"


def _mask_of(peer: str) -> str:
    return peer.partition(" ")[2].partition(" by ")[0]


def machine() -> dict[str, Any]:
    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        found |= {"gpu": torch.cuda.get_device_name(), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32768, help="of the whole sequence, where times are measured")
    parser.add_argument("--long", type=int, nargs="*", default=[], metavar="ROWS", help="other lengths to measure at")
    parser.add_argument(
        "--settle", type=float, default=200, help="ms of calls ahead of a measurement, for clocks to settle"
    )
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--tiny", action="store_true", help="small sizes, one measurement")
    parser.add_argument("--ranks", type=int, help="by default all GPUs; two processes with gloo")
    parser.add_argument("--transport", choices=("auto", "peer", "collective"), default="auto", help="of ours")
    parser.add_argument("--budget", type=float, default=150, help="seconds")
    parser.add_argument("--only", help="units whose names hold one of these texts, as A,B, and what compiles them")
    parser.add_argument("--json", type=Path, help="writes what was measured")
    given = parser.parse_args()
    ranks = given.ranks or (torch.cuda.device_count() if given.backend == "nccl" else 2)
    if ranks < 2:
        parser.error("needs two GPUs, or --backend gloo --tiny")
    os.environ |= NO_MULTICAST
    texts = given.only.split(",") if given.only else [""]
    wanted = [name for name in units(given.long) if name == "compile" or any(text in name for text in texts)]
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        tiny = Settings.tiny(given.backend, folder)
        settings = tiny if given.tiny else Settings(given.backend, folder, given.rows, checked=4096, runs=100)
        settings = replace(settings, transport=given.transport, settle=0 if given.tiny else given.settle)
        found = Run(settings, ranks, wanted, given.budget, _writer(given.json, settings, ranks)).all()
    print("\n".join(table(found)))
    failed = [name for name, row in found.items() if row.get("error") or row.get("wrong")]
    well, took = len(found) - len(failed), time.time() - start
    print(f"{well} of {len(found)} units well, {took:.0f} s; {ranks} of {settings.device}")


def _writer(path: Path | None, settings: Settings, ranks: int) -> Callable[[Found], None]:
    """Writes what was measured so far."""
    sizes = {"ranks": ranks, "rows": settings.rows, "heads": settings.heads, "head_dim": settings.head_dim}

    def write(found: Found) -> None:
        if path is not None:
            written = {"machine": machine(), **sizes, "dtype": "bf16", "units": found}
            part = path.with_suffix(".part")
            part.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
            part.replace(path)

    return write


if __name__ == "__main__":
    main()
