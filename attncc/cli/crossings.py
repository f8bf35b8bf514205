"""`attncc tune --crossings`: where the forms of serving calls cross on this GPU, kept for all kernels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ..quoting import json_text
from ..version import __version__
from .console import as_json, progress, rich_console, wrapped
from .interrupts import Interrupted

if TYPE_CHECKING:
    from rich.table import Table

    from ..kernels.crossings import Crossings
    from ..tune.crossings import Found, Measurement
    from ..tune.crossings_gpu import CrossingsGpu

OPTIONS = ("crossings", "budget", "dry_run", "output_format", "help")  # that go together with --crossings


def check_alone(ctx: click.Context) -> None:
    """A usage error if a file, or an option of tuning a file, was given too."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in OPTIONS:
            what = "FILE" if isinstance(parameter, click.Argument) else parameter.opts[0]
            raise click.UsageError(f"{what} doesn't go with --crossings, which measures the GPU, for all kernels", ctx)


def measure(budget: float, *, dry_run: bool) -> None:
    """Measures, prints and keeps the crossing points of this machine's GPU."""
    from ..kernels.crossings import Crossings
    from ..runtime.store import crossings as store
    from ..tune.crossings import Measurement
    from ..tune.crossings_gpu import CrossingsGpu

    gpu = CrossingsGpu()
    known = store.kept(gpu.device.name)
    before = Crossings() if known is None or known.about.get("attncc") != __version__ else known.crossings
    run = Measurement(gpu, before, budget)
    interrupted = _run(run)
    if not dry_run and any(found.is_measured for found in run.found.values()):
        store.keep(store.Measured(gpu.device.name, run.crossings, gpu.about()))
    if as_json():
        click.echo(json_text(_to_json(run, before, gpu), indent=2))
    else:
        rich_console().print(_table(run))
        click.echo(wrapped(f"\n{gpu.device.name}: {_sentence(run, gpu, dry_run=dry_run)}"))
    if interrupted:
        raise Interrupted


def _run(run: Measurement) -> bool:
    """True if Ctrl-C ended it: what was found until then counts."""
    from ..tune.crossings import PASSES

    with progress("measuring:", 1 + len(run.points) * PASSES) as run.say:
        try:
            run.run()
        except (Interrupted, KeyboardInterrupt):
            return True
    return False


def _table(run: Measurement) -> Table:
    from rich.table import Table

    from ..tune.crossings import shown

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("crossing point")
    table.add_column("was", justify="right", no_wrap=True)
    table.add_column("now", justify="right", no_wrap=True)
    table.add_column("saves, of calls that change")
    for found in run.found.values():
        table.add_row(found.point.decides, shown(found.was), shown(found.now), _gain(found))
    return table


def _gain(found: Found) -> str:
    interval = "{:.1%} to {:.1%}".format(*found.interval)
    if found.why:
        return found.why + (f" ({interval})" if any(found.interval) else "")
    return f"{found.gain:.1%} ({interval})"


def _sentence(run: Measurement, gpu: CrossingsGpu, *, dry_run: bool) -> str:
    """What became of it."""
    from ..runtime.store.crossings import path_of

    if not any(found.is_measured for found in run.found.values()):
        return "the time was too short: nothing was measured to the end. Try a longer --budget"
    moved = sum(found.now != found.was for found in run.found.values())
    what = f"{moved} of {len(run.found)} crossing points moved" if moved else "all crossing points stay"
    path = path_of(gpu.device.name)
    if dry_run:
        return f"{what}. Nothing is written; without --dry-run {path} would be"
    note = ". Calls that get another form round otherwise" * (moved > 0)
    return f"{what}{note}. Processes that begin now read them from {path}; delete it, and the usual ones count again"


def _to_json(run: Measurement, before: Crossings, gpu: CrossingsGpu) -> dict[str, Any]:
    points = {
        name: {
            "was": found.was,
            "now": found.now,
            "gain": found.gain,
            "interval": found.interval,
            "why": found.why,
            "calls": [
                {**timed.sample._asdict(), "values": timed.values, "ratio": timed.ratio} for timed in found.timed
            ],
        }
        for name, found in run.found.items()
    }
    about = {**gpu.about(), "ended": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    return {
        "device": gpu.device.name,
        "about": about,
        "points": points,
        "before": before._asdict(),
        "crossings": run.crossings._asdict(),
    }
