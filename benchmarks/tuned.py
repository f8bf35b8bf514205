"""What `attncc tune` finds in its budget, beside an exhaustive search; and how often a schedule beats itself.

    python -m benchmarks.tuned [--budget 60] [--only softcap_192,…] [--tries 20] [--out FOLDER]

For each case: a run of the tuner; then every legal tile of a grid, compiled and, unless it spills, timed in blocks
against what the tuner chose. The best few are timed again. `best`: how long the fastest takes, times what was chosen;
1 where nothing is faster. `again`: whether a second run, with the chosen schedule in place, would change it. `self`:
how many of `--tries` races of a schedule against itself have a winner. Variants and sizes are such that no default was
chosen by them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from attncc.compiler import load_specification
from attncc.diagnostics import AttnccError
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime.cuda.device import best_target
from attncc.runtime.cuda.driver import driver
from attncc.runtime.cuda.nvrtc_pool import jobs
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import KEY_PASSES, Build
from attncc.schedule.schedule import Schedule
from attncc.schedule.target import TARGETS
from attncc.tune.candidates import NAME, TunedKernel, first_plan, settings_of
from attncc.tune.compiling import settled
from attncc.tune.gpu import Gpu
from attncc.tune.log import Log
from attncc.tune.model import Model, device_like
from attncc.tune.race import HELD, TWIN, Board, Timer, confirm, halve, ranked
from attncc.tune.session import Session
from attncc.tune.work import Work

from .measure import RESULTS, table, write

GRID = {"block_q": (64, 128, 192, 256), "block_kv": tuple(range(32, 193, 16)), "stages": (2, 3, 4, 5)}
KEYS_GRID = {"block_q": (32, 64, 128), "block_kv": (64, 128, 256), "stages": (1, 2, 3)}
FINALISTS = 6


@dataclass(frozen=True)
class Case:
    """A spec with consts, and a problem."""

    name: str
    spec: str
    problem: Problem
    pass_name: str = "forward"
    dtype: str = "bf16"
    defines: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def kernel(self) -> TunedKernel:
        specification, _ = load_specification(folder("specs") / f"{self.spec}.attn", None, self.defines)
        specification = replace(specification, schedules=())
        target = best_target(TARGETS, driver().device(0).capability)
        assert target is not None
        problem = self.problem
        configuration = Configuration(self.dtype, problem.head_dim, problem.value_head_dim)
        return TunedKernel(specification, Build(self.pass_name, target, *configuration))

    @cached_property
    def work(self) -> Work:
        return Work(self.kernel.variant, self.problem, self.dtype, self.pass_name, {})


def _problem(length: int, dim: int, value: int = 0, heads: int = 16, kv_heads: int = 16) -> Problem:
    return Problem(4, heads, kv_heads, length, length, dim, value or dim)


CASES = [
    Case("softcap_192", "softcap", _problem(3000, 192, 128)),
    Case("gelu_80", "gelu_attention", _problem(2500, 80)),
    Case("sandwich_96", "sandwich", _problem(3333, 96)),
    Case("dilated_64", "dilated_window", _problem(5000, 64)),
    Case("sigmoid_128", "sigmoid_attention", _problem(2000, 128, heads=20, kv_heads=5)),
    Case("sink_gqa_112", "sink_attention", _problem(2222, 112, heads=24, kv_heads=3)),
    Case("trigonometric_48", "trigonometric", _problem(4444, 48)),
    Case("documents_fp16_160", "documents", _problem(3500, 160), dtype="fp16"),
    Case("decode_gqa_96", "causal", Problem(3, 48, 6, 1, 9000, 96, 96), "decode"),
    Case("backward_80", "sliding_window", _problem(2500, 80), "backward", defines={"width": 700}),
]


# -------------------------------------------------------------------- the tuner, twice


def tuned(case: Case, gpu: Gpu, budget: float, held: Schedule | None = None) -> Session:
    """A run of the tuner, with this schedule in the file."""
    kernel, device = case.kernel, gpu.device
    if held is not None:
        kernel = replace(kernel, specification=kernel.with_schedule(held))
    roofline = device_like(device.name, device.capability, device.multiprocessors)
    model = Model(case.problem, case.work.inputs, *roofline)
    with tempfile.TemporaryDirectory() as kept:
        session = Session(kernel, case.work, model, gpu, Log.begin(Path(kept) / "log", {}, {}), budget)
        session.run()
    return session


# -------------------------------------------------------------------- all tiles


def grid(case: Case) -> Iterator[Schedule]:
    """Those of the grid that can be, of each family."""
    kernel, seen = case.kernel, set[str]()
    sizes = KEYS_GRID if case.pass_name in KEY_PASSES else GRID
    named = kernel.candidates(None).families
    for family, values in product(named, product(*sizes.values())):
        settings: dict[str, Any] = {"family": family} if len(named) > 1 else {}
        settings |= dict(zip(sizes, values, strict=True))
        schedule = Schedule(
            NAME,
            kernel.variant.name,
            case.pass_name,
            kernel.build.target,
            tuple((name, (value,)) for name, value in settings.items()),
        )
        try:
            plan = first_plan(kernel, schedule)
        except AttnccError:
            continue
        if plan.tiles not in seen:
            seen.add(plan.tiles)
            yield schedule


def sound(case: Case, schedules: list[Schedule]) -> list[Schedule]:
    """Those that neither spill nor serialise products."""

    def is_sound(schedule: Schedule) -> bool:
        try:
            return not settled(case.kernel, schedule).troubles
        except AttnccError:
            return False

    with ThreadPoolExecutor(jobs()) as pool:
        found = list(pool.map(is_sound, schedules))
    return [schedule for schedule, good in zip(schedules, found, strict=True) if good]


def exhaustive(case: Case, gpu: Gpu, chosen: Schedule | None) -> tuple[int, float, str]:
    """How many were timed; the fastest's time as a share of what was chosen; its settings."""
    schedules = {settings_of(item): item for item in sound(case, list(grid(case)))}
    launches = {name: gpu.launch(case.kernel.with_schedule(item)) for name, item in schedules.items()}
    launches[HELD] = gpu.launch(case.kernel.with_schedule(chosen))
    timer, board = Timer(gpu, launches, gpu.clock() + 3600), Board()
    timer.warm()
    for name in schedules:
        for _ in range(5):
            board.add("raced", name, timer.block(name))
    finalists = ranked(board, schedules)[:FINALISTS]
    for _ in range(40):
        for name in finalists:
            board.add("confirmed", name, timer.block(name))
    again = Board(confirmed={name: board.confirmed[name] for name in finalists})
    best = min(finalists, key=again.ratio)
    return len(schedules), min(again.ratio(best), 1.0), best


# -------------------------------------------------------------------- a schedule against itself


def self_wins(case: Case, gpu: Gpu, tries: int) -> int:
    wins = 0
    for number in range(tries):
        names = (HELD, TWIN, "a", "b", "c")
        launches = {name: gpu.launch(case.kernel.with_schedule(None)) for name in names}
        timer, board = Timer(gpu, launches, gpu.clock() + 60), Board()
        timer.warm()
        first, *_ = halve(timer, board, ("a", "b", "c"), number)
        wins += confirm(timer, board, first).wins
    return wins


# -------------------------------------------------------------------- the record


def measure(case: Case, budget: float, tries: int) -> dict[str, Any]:
    gpu = Gpu(case.work, case.kernel)
    begin = gpu.clock()
    session = tuned(case, gpu, budget)
    seconds = gpu.clock() - begin
    chosen = None if session.winner is None else session.winner.schedule
    again = tuned(case, gpu, budget, chosen)
    count, best, settings = exhaustive(case, gpu, chosen)
    verdict = session.verdict
    return {
        "case": case.name,
        "chosen": "as before" if chosen is None else settings_of(chosen),
        "gain": 0.0 if verdict is None or chosen is None else verdict.gain,
        "seconds": seconds,
        "again": again.winner is not None,
        "tiles": count,
        "best": best,
        "best_settings": settings,
        "self_wins": self_wins(case, gpu, tries) if tries else None,
        "tries": tries,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    names = ("case", "gain", "seconds", "again", "tiles", "best", "self_wins")
    return table(names, [tuple(row[name] for name in names) for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=60, help="seconds")
    parser.add_argument("--only", default="", help="names of cases, with commas")
    parser.add_argument("--tries", type=int, default=20, help="races of a schedule against itself, for the first case")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    wanted = [case for case in CASES if not given.only or case.name in given.only.split(",")]
    rows = []
    for number, case in enumerate(wanted):
        rows.append(measure(case, given.budget, given.tries if number == 0 else 0))
        print(summary(rows[-1:]), rows[-1]["chosen"], "; best:", rows[-1]["best_settings"], flush=True)
    print(f"{write('tuned', rows, given.out)}\n{summary(rows)}")


if __name__ == "__main__":
    main()
