"""Sweeps over builds that take hours, in parts: what is done is kept in a file, and a later call goes on from there.

A build stays done as long as all is the same that its result depends on. A stamp says so: of the texts that may be
compiled, the compiler's version and options, and the rules by which `attncc.settle` chooses. No path, device or number
of cores is part of it, so a file may come from another machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import active_children
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any, NamedTuple

import attncc.settle
from attncc.runtime.cuda import nvrtc

from .cubin import compiler_version
from .sweep import Case


class Done(NamedTuple):
    """Of a build: the stamp of what its result depends on, the seconds that it took, and the result, as JSON has it."""

    stamp: str
    seconds: float
    found: Any


Work = Callable[[Case, str], Done | None]  # of a build; None if the stamp, of the last time, is still right


class Kept:
    """The builds that are done, by name; each is written to the file as soon as it is."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.builds: dict[str, Done] = {}
        if path is not None and path.is_file():
            self.builds = {name: Done(*row) for name, row in json.loads(path.read_text(encoding="utf-8")).items()}

    def stamp(self, case: Case) -> str:
        """Empty if it was never done."""
        kept = self.builds.get(name_of(case))
        return kept.stamp if kept else ""

    def add(self, case: Case, done: Done | None) -> Any:
        """The result. None: it is here."""
        if done is not None:
            self.builds[name_of(case)] = done
            self._write()
        return self.builds[name_of(case)].found

    def _write(self) -> None:
        if self.path is not None:
            lines = (f"{json.dumps(name)}: {json.dumps(done)}" for name, done in sorted(self.builds.items()))
            beside = self.path.with_name(self.path.name + ".new")
            beside.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
            beside.replace(self.path)


def name_of(case: Case) -> str:
    return f"{case.spec} {case.dtype} {case.head_dims[0]} {case.target}"


@cache
def compiler() -> str:
    """`13.0.88`: NVRTC itself says less, and names no update."""
    return compiler_version(nvrtc.compile_text('extern "C" __global__ void nothing() {}', "sm_80").image)


def stamp(target: str, depends_on: Iterable[str]) -> str:
    """Of what a result depends on besides the compiler, and of the compiler."""
    rules = Path(attncc.settle.__file__).read_text(encoding="utf-8")
    parts = (compiler(), *nvrtc.options(target), rules, *depends_on)
    return hashlib.sha256("\f".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class How:
    """How a sweep runs: in how many processes, after how many seconds it ends, and what was done before."""

    jobs: int | None = None
    seconds: float | None = None
    kept: Kept = field(default_factory=Kept)


def how(options: Namespace) -> How:
    """As the command line says (`add_options`)."""
    return How(options.jobs, options.seconds, Kept(options.keep))


def sweep(work: Work, wanted: Iterable[Case], how: How) -> dict[Case, Any]:
    """The results of all builds, or of those that are done when its time is over; what is in work then is given up.
    Builds go spec by spec, those that were never done first. Each has a process."""
    ends = None if how.seconds is None else monotonic() + how.seconds
    found: dict[Case, Any] = {}
    others = active_children()
    with ProcessPoolExecutor(how.jobs) as pool:
        new_first = sorted(wanted, key=lambda case: (how.kept.stamp(case) != "", case))
        waiting = {pool.submit(work, case, how.kept.stamp(case)): case for case in new_first}
        number = len(waiting)
        try:
            while waiting and (ends is None or monotonic() < ends):
                for future in _next(waiting, ends):
                    case = waiting.pop(future)
                    found[case] = how.kept.add(case, future.result())
                    print(f"\r{len(found)} of {number} builds: {case.spec:30}", end="", file=sys.stderr, flush=True)
        finally:
            if waiting:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in set(active_children()).difference(others):
                    process.terminate()
    print(file=sys.stderr)
    return found


def _next(waiting: Iterable[Future[Any]], ends: float | None) -> set[Future[Any]]:
    left = None if ends is None else max(ends - monotonic(), 0)
    return wait(waiting, left, return_when=FIRST_COMPLETED)[0]


def minutes_left(kept: Kept, wanted: Iterable[Case]) -> float:
    """How many minutes of one core the builds take that aren't done: as long as others of their dtype, head dims and
    target."""
    took: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    missing = []
    for case in wanted:
        done = kept.builds.get(name_of(case))
        if done is None:
            missing.append(case)
        else:
            took[case[1:]].append(done.seconds)
    of_all = [seconds for some in took.values() for seconds in some] or [0.0]
    return sum(fmean(took.get(case[1:], of_all)) for case in missing) / 60


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, help="end after so long, with the builds that are done")
    parser.add_argument("--keep", type=Path, help="a file for the builds that are done; those in it aren't done again")


def say_what_is_left(kept: Kept, found: Collection[Case], wanted: Collection[Case]) -> None:
    if len(found) < len(wanted):
        minutes = minutes_left(kept, wanted)
        print(f"{len(found)} of {len(wanted)} builds, as time was over; to do: about {minutes:.0f} minutes of one core")
