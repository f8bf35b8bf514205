"""Every legal tile of a grid: all are compiled, and those that neither spill nor serialise products are timed.

    python -m benchmarks.exhaustive --only softcap_192,… --out FOLDER [--target sm_90a]

compiles the grids of some cases of `benchmarks.tuned`, one after the other, and writes what ptxas says of each tile to
`FOLDER/<case>.json`. It needs no GPU. It runs beside the tuner, at the lowest priority and with a cache of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from attncc.diagnostics import AttnccError
from attncc.runtime.cuda.nvrtc_pool import jobs
from attncc.runtime.cuda.timing import Launch
from attncc.schedule.plan import KEY_PASSES
from attncc.schedule.schedule import Schedule
from attncc.tune.candidates import NAME, first_plan, settings_of
from attncc.tune.compiling import settled
from attncc.tune.machine import Machine
from attncc.tune.race import HELD, Board, Timer, ranked

from .tuned_cases import Case, chosen

Sizes = Mapping[str, Sequence[int]]

GRID: Sizes = {"block_q": (64, 128, 192, 256), "block_kv": tuple(range(32, 193, 16)), "stages": (2, 3, 4, 5)}
# Of families behind the first, which take about twice as long.
COARSE: Sizes = {"block_q": (64, 128), "block_kv": (32, 64, 96, 128), "stages": (2, 3)}
KEYS_GRID: Sizes = {"block_q": (32, 64, 128), "block_kv": (64, 128, 256), "stages": (1, 2, 3)}

SHORT_MS = 6.0, 3.0  # windows of the first look, and what settles the clock before them
LOOKS = 2, 5, 15  # blocks: short ones of all, then of those that may be the fastest, then of the finalists
MAYBE = 1.03, 1.01  # times what the tuner chose: what is slower than that isn't looked at again
FINALISTS = 6
NO_END = 3600.0  # seconds


# -------------------------------------------------------------------- which, and what ptxas says


def grid(case: Case) -> Iterator[Schedule]:
    """Those of the grid that can be, of each family."""
    kernel, seen = case.kernel, set[str]()
    families = kernel.candidates(None).families
    for number, family in enumerate(families):
        sizes = KEYS_GRID if case.pass_name in KEY_PASSES else COARSE if number else GRID
        for values in product(*sizes.values()):
            settings: dict[str, Any] = {"family": family} if len(families) > 1 else {}
            settings |= dict(zip(sizes, values, strict=True))
            lines = tuple((name, (value,)) for name, value in settings.items())
            schedule = Schedule(NAME, kernel.variant.name, case.pass_name, kernel.build.target, lines)
            try:
                plan = first_plan(kernel, schedule)
            except AttnccError:
                continue
            if plan.tiles not in seen:
                seen.add(plan.tiles)
                yield schedule


def troubles(case: Case) -> dict[str, str]:
    """By the settings of each tile of the grid, what is wrong with its machine code; empty if nothing is."""

    def trouble(schedule: Schedule) -> str:
        try:
            return settled(case.kernel, schedule).troubles
        except AttnccError as error:
            return error.diagnostics[0].message

    schedules = list(grid(case))
    with ThreadPoolExecutor(jobs()) as pool:
        return dict(zip(map(settings_of, schedules), pool.map(trouble, schedules), strict=True))


# -------------------------------------------------------------------- the fastest of all


@dataclass(frozen=True)
class Search:
    """`best`: how long the fastest tile takes, times what the tuner chose, with the interval of the median; `families`:
    the same of each family's fastest, by a first look."""

    tiles: int  # legal
    sound: int  # and timed
    best: float
    interval: tuple[float, float]
    settings: str
    families: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def search(case: Case, machine: Machine, held: Launch, found: Mapping[str, str]) -> Search:
    """Times what has no trouble against what the tuner chose, which is held."""
    schedules = {settings_of(item): item for item in grid(case)}
    sound = [name for name in schedules if not found[name]]
    launches = {name: machine.launch(case.kernel.with_schedule(schedules[name])) for name in sound}
    seen = first = _seen(machine, {HELD: held, **launches}, sound, LOOKS[0], *SHORT_MS)
    names = ranked(first, sound)
    for look, limit in zip(LOOKS[1:], MAYBE, strict=True):
        left = [name for name in names if seen.ratio(name) <= limit] or names[:1]
        seen = _seen(machine, {HELD: held, **launches}, left[:FINALISTS] if look == LOOKS[-1] else left, look)
        names = ranked(seen, left)
    best = names[0]
    families = {family: first.ratio(min(own, key=first.ratio)) for family, own in _by_family(sound, schedules).items()}
    return Search(len(schedules), len(sound), seen.ratio(best), seen.interval(best), best, families)


def _seen(machine: Machine, launches: dict[str, Launch], names: Sequence[str], blocks: int, *length: float) -> Board:
    """So many fresh blocks of each, in rounds; `length`: of windows, and of what settles the clock."""
    timer, board = Timer(machine, launches, machine.clock() + NO_END), Board()
    if length:
        timer.window_ms, timer.settle_ms = length
    timer.warm()
    for _ in range(blocks):
        before: float | None = None
        for name in names:
            block = timer.block(name, before)
            before = block.after
            board.add("raced", name, block)
    return board


def _by_family(names: Sequence[str], schedules: Mapping[str, Schedule]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(str(schedules[name].chosen.get("family", "the only one")), []).append(name)
    return found


# -------------------------------------------------------------------- beside the tuner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of cases, with commas between them")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    os.nice(19)
    given.out.mkdir(parents=True, exist_ok=True)
    for case in chosen(given.only, given.target):
        begin = time.monotonic()
        found = troubles(case)
        part = given.out / f"{case.name}.part"
        part.write_text(json.dumps({"seconds": time.monotonic() - begin, "troubles": found}))
        part.replace(given.out / f"{case.name}.json")


if __name__ == "__main__":
    main()
