"""`attncc tune`: the fastest schedule for this GPU, written back into the file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..quoting import json_text, printable
from .console import as_json, progress, rich_console
from .files import load_specification, replace_text
from .options import (
    OWN_FILE,
    check_for_gpu,
    define_option,
    dtype_option,
    format_option,
    imports_option,
    input_option,
    problem_options,
    variant_option,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ..ir import Variant
    from ..runtime.kernel import Kernel
    from ..tune import Measure, Trial


@click.command("tune", short_help="Measure schedules on this GPU and write the best into the file.")
@click.argument("file", type=OWN_FILE)
@variant_option
@dtype_option
@problem_options(q_len=4096, heads=16, batch=4)
@click.option("--dry-run", is_flag=True, help="Print the table; leave the file as it is.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of random arrays and of dropout.")
@input_option
@define_option
@imports_option
@format_option
def command(*, file: Path, dry_run: bool, **given: Any) -> None:
    """Time candidates for a variant's schedule on this GPU, on random arrays of the sizes given, and write the fastest
    into the file as a plain schedule. Nothing else in the file changes.

    The candidates are those in the schedule's braces, as in block_kv = {64, 128}; where it has none and names no tiles,
    the tiles that attncc would choose among. Those that spill registers are left out.

    Tuned is the pass that a forward call of these sizes runs: forward, patches or decode. Schedules of the backward
    passes aren't timed: their first candidates stand. Nor is e4m3: CuPy has no such arrays.

    \b
    attncc tune mine.attn --head-dim 128
    attncc tune mine.attn --dry-run --q-len 8192 --batch 2 --heads 32 --kv-heads 8
    """
    from .. import tune
    from ..compiler import read
    from ..kernels.serving import plan_for
    from ..runtime.cuda.device import best_target
    from ..runtime.cuda.driver import driver
    from ..runtime.store.store import Configuration
    from ..schedule.target import TARGETS

    check_for_gpu(given["dtype"])
    specification, problem = load_specification(file, given), given["problem"]
    gpu = driver().device(0)
    target = best_target(TARGETS, gpu.capability) or f"sm_{gpu.capability}"
    configuration = Configuration(given["dtype"], problem.head_dim, problem.value_head_dim)
    plans = specification.plans(configuration, target)
    pass_name = plan_for(plans, problem, gpu.multiprocessors).pass_name
    measure = _on_gpu(specification.variant, given)
    trials = tune.tune(specification, configuration, target, pass_name, measure, watch=partial(progress, "compiling"))
    if as_json():
        click.echo(json_text(_result(trials, gpu.name, pass_name), indent=2))
    else:
        rich_console().print(_table(trials))
    if not dry_run:
        replace_text(file, tune.written(read(file), trials[0].schedule))
    if not as_json():
        done = "the file is as it was" if dry_run else f"written to {printable(str(file))}"
        click.echo(f"{pass_name} on {gpu.name}: {trials[0].settings}; {done}")


def _on_gpu(variant: Variant, given: dict[str, Any]) -> Measure:
    """Times calls on random arrays, which are moved to the GPU once."""
    import numpy as np

    from .. import synthetic
    from ..runtime.cuda.timing import milliseconds
    from ..runtime.frameworks.transfer import to_gpu

    problem, rng = given["problem"], np.random.default_rng(given["seed"])
    drawn = synthetic.inputs(variant, problem, rng) | given["given_inputs"]
    seed = {"seed": given["seed"]} if variant.dropout is not None else {}
    arrays = synthetic.qkv(problem, given["dtype"], rng)

    def measure(kernels: Sequence[Kernel]) -> Sequence[float]:
        q, k, v = map(to_gpu, arrays)
        inputs = {name: to_gpu(value) if isinstance(value, np.ndarray) else value for name, value in drawn.items()}
        with progress("timing"):
            return milliseconds([partial(kernel, q, k, v, **inputs, **seed) for kernel in kernels])

    return measure


def _result(trials: Sequence[Trial], device: str, pass_name: str) -> dict[str, Any]:
    """What `--format json` prints."""
    shown = [
        {"settings": trial.schedule.chosen, "milliseconds": trial.milliseconds, "trouble": trial.trouble}
        for trial in trials
    ]
    return {"variant": trials[0].schedule.variant, "pass": pass_name, "device": device, "trials": shown}


def _table(trials: Sequence[Trial]) -> Table:
    """A row for each candidate."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ms", "x best", "settings", ""):
        table.add_column(name, justify="right" if name in ("ms", "x best") else "left")
    best = trials[0].milliseconds or 1
    for trial in trials:
        times = (
            ("-", "-")
            if trial.milliseconds is None
            else (f"{trial.milliseconds:.4g}", f"{trial.milliseconds / best:.2f}")
        )
        table.add_row(*times, trial.settings, trial.trouble)
    return table
