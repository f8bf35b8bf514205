"""What `attncc tune` finds in its budget, beside an exhaustive search; and whether a schedule beats itself.

    python -m benchmarks.tuned [--only softcap_192,…] [--seconds 200] [--keep FILE] [--out FOLDER]

For each case of `tuned_cases`: a run of the tuner with an empty cache; a second one with what it chose in the file;
then every legal tile of a grid (`benchmarks.exhaustive`), against what was chosen. Beside the tuner another process
compiles those tiles, at the lowest priority. The record is written after each case. With `--seconds` no case begins
that may not end in time; `--keep` goes on from an earlier record, whose cases aren't run again.

`best`: how long the fastest tile takes, times what was chosen; below 0.99 the tuner missed its aim. `again`: whether
the second run would change the file. `self_wins`: how many of `--tries` duels what was chosen wins against itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from attncc.compiler import Specification
from attncc.runtime.cuda.device import best_target
from attncc.runtime.cuda.driver import driver
from attncc.runtime.cuda.nvrtc_pool import JOBS, jobs
from attncc.runtime.store.cache import OVERRIDE
from attncc.schedule.schedule import Schedule
from attncc.schedule.target import TARGETS
from attncc.tune.candidates import settings_of
from attncc.tune.gpu import Gpu
from attncc.tune.log import Log
from attncc.tune.machine import Machine
from attncc.tune.model import Model, device_like
from attncc.tune.race import HELD, Board, Timer, confirm
from attncc.tune.session import Session

from .exhaustive import NO_END, search
from .tuned_cases import Case, chosen

NAME = "tuned"
POLL_S = 0.2
Rows = list[dict[str, Any]]


# -------------------------------------------------------------------- the tuner, twice


def tuned(case: Case, machine: Machine, budget: float, held: Schedule | None = None) -> tuple[Session, float]:
    """A run of the tuner with this schedule in the file, and the seconds that it took."""
    kernel = case.kernel
    if held is not None:
        kernel = replace(kernel, specification=kernel.with_schedule(held))
    device = driver().device(0)
    begin = time.monotonic()
    model = Model(case.problem, case.work.inputs, *device_like(device.name, device.capability, device.multiprocessors))
    with tempfile.TemporaryDirectory() as kept:
        session = Session(kernel, case.work, model, machine, Log.begin(Path(kept) / "log", {}, {}), budget)
        session.run()
    return session, time.monotonic() - begin


def beats_itself(machine: Machine, specification: Specification) -> bool:
    """Whether a second launch of a kernel wins the duel against the first."""
    launches = {name: machine.launch(specification) for name in (HELD, "itself")}
    timer, board = Timer(machine, launches, machine.clock() + NO_END), Board()
    timer.warm()
    return confirm(timer, board, "itself").wins


# -------------------------------------------------------------------- compiling beside


class Beside:
    """A process that compiles the grids of cases, with a cache of its own and half of the cores, and what it found."""

    def __init__(self, cases: Sequence[Case], folder: Path) -> None:
        self.cache, self._found = folder / "cache", folder / "found"
        names = ",".join(case.name for case in cases)
        command = [sys.executable, "-m", "benchmarks.exhaustive", "--only", names, "--target", cases[0].target]
        environment = {**os.environ, OVERRIDE: str(self.cache), JOBS: str(max(jobs() // 2, 1))}
        self._process = subprocess.Popen([*command, "--out", str(self._found)], env=environment)

    def troubles(self, case: Case) -> dict[str, str]:
        """What ptxas says of each tile, as soon as all are compiled. SystemExit if the process failed."""
        path = self._found / f"{case.name}.json"
        while not path.exists():
            ended = self._process.poll() is not None
            if ended and not path.exists():
                raise SystemExit(f"the grid of {case.name} wasn't compiled: see above")
            time.sleep(POLL_S)
        found: dict[str, str] = json.loads(path.read_text())["troubles"]
        return found

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Kernels are kept in another folder."""
    before = os.environ.get(OVERRIDE)
    os.environ[OVERRIDE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[OVERRIDE]
        else:
            os.environ[OVERRIDE] = before


# -------------------------------------------------------------------- the record


def measure(case: Case, budget: float, tries: int, beside: Beside) -> dict[str, Any]:
    begin = time.monotonic()
    machine = Gpu(case.work, case.kernel)
    with tempfile.TemporaryDirectory() as empty, cache_in(Path(empty)):
        first, seconds = tuned(case, machine, budget)
        schedule = None if first.winner is None else first.winner.schedule
        again, again_seconds = tuned(case, machine, budget, schedule)
        own = case.kernel.with_schedule(schedule)
        held = machine.launch(own)
        self_wins = sum(beats_itself(machine, own) for _ in range(tries))
    with cache_in(beside.cache):
        found = search(case, machine, held, beside.troubles(case))
    return {
        "case": case.name,
        "chosen": "as before" if schedule is None else settings_of(schedule),
        "gain": 0.0 if first.verdict is None or schedule is None else first.verdict.gain,
        "seconds": seconds,
        "timed": len(first.board.raced),
        "milliseconds": first.board.held_milliseconds,  # of what attncc chooses by itself
        "again": again.winner is not None,
        "again_seconds": again_seconds,
        "self_tries": tries,
        "self_wins": self_wins,
        **found.to_json(),
        "best": min(found.best, 1.0),
        "case_seconds": time.monotonic() - begin,
        "ended": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }


def summary(rows: Rows) -> str:
    from .measure import table

    names = "case", "gain", "seconds", "again", "tiles", "sound", "best", "self_tries", "self_wins", "case_seconds"
    return table(names, [tuple(row[name] for name in names) for row in rows])


def run(cases: Sequence[Case], given: argparse.Namespace, rows: Rows, ends: float) -> None:
    """Case after case, as long as the longest that ran yet would end in time."""
    from .measure import RESULTS, write

    with tempfile.TemporaryDirectory() as folder:
        beside = Beside(cases, Path(folder))
        try:
            for case in cases:
                if time.monotonic() + max((row["case_seconds"] for row in rows), default=0.0) > ends:
                    print(f"no time for {case.name} and what follows it")
                    break
                rows.append(measure(case, given.budget, given.tries, beside))
                print(summary(rows[-1:]), rows[-1]["chosen"], "; best:", rows[-1]["settings"], flush=True)
                write(NAME, rows, given.out or RESULTS)
        finally:
            beside.end()
    print(summary(rows))


def main() -> None:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=60, help="of a run of the tuner, in seconds")
    parser.add_argument("--only", default="", help="names of cases, with commas between them")
    parser.add_argument("--tries", type=int, default=2, help="duels of a schedule against itself, in each case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of all together")
    parser.add_argument("--keep", type=Path, help="a record to go on from")
    parser.add_argument("--out", type=Path, help="where the record goes, if not to benchmarks/results")
    given = parser.parse_args()
    target = best_target(TARGETS, driver().device(0).capability)
    rows: Rows = [] if given.keep is None else json.loads(given.keep.read_text())["rows"]
    done = {row["case"] for row in rows}
    cases = [case for case in chosen(given.only, target) if case.name not in done]
    if cases:
        run(cases, given, rows, begin + given.seconds)


if __name__ == "__main__":
    main()
