"""`attncc tune`: the fastest schedule for this GPU, written back into the file."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..diagnostics import AttnccError, Diagnostic
from ..quoting import json_text, printable
from .console import as_json, progress, rich_console, wrapped
from .crossings import check_alone, measure
from .files import check_element_types, check_replaceable, load_specification, replace_text, writing
from .here import own_kernel_here, pass_here, target_here
from .interrupts import Interrupted
from .options import (
    OWN_FILE,
    define_option,
    dtype_option,
    format_option,
    imports_option,
    input_option,
    problem_options,
    seed_option,
    variant_option,
)

if TYPE_CHECKING:
    from ..compiler import Specification
    from ..ir import Variant
    from ..tune.candidates import TunedKernel
    from ..tune.log import Log
    from ..tune.machine import Machine
    from ..tune.session import Say, Session
    from ..tune.work import Work

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


class Duration(click.ParamType[float]):
    """`60s`, `2m`, or seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(s|m|min|h)?", str(value))
        if found is None or float(found[1]) == 0:
            self.fail(f"{value!r}: write a time as in 60s, or 2m", param, ctx)
        return float(found[1]) * _UNITS[found[2] or ""]


class LengthRange(click.ParamType[Any]):
    """`1024..8192`, or `1024..`: the first and the last."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        from ..ir import MAX_LENGTH

        found = re.fullmatch(r"([0-9]{1,10})\.\.([0-9]{1,10})?", str(value))
        first, last = (0, 0) if found is None else (int(found[1]), int(found[2] or MAX_LENGTH))
        if not 0 < first <= last <= MAX_LENGTH:
            self.fail(f"{value!r}: write a range as in 1024..8192", param, ctx)
        return first, last


@click.command("tune", short_help="Measure schedules on this GPU and write the best into the file.")
@click.argument("file", type=OWN_FILE, required=False)
@variant_option
@dtype_option
@problem_options(q_len=4096, heads=16, batch=4)
@click.option(
    "--pass",
    "asked",
    type=click.Choice(["forward", "backward", "backward_dq"]),
    default="forward",
    show_default=True,
    help="Calls to tune for: their sizes tell whether decode or 2-D tiles run.",
)
@click.option(
    "--lengths",
    type=LengthRange(),
    help="Numbers of keys, as in 1024..8192: the schedule is written for these alone. --kv-len is one of them.",
)
@click.option(
    "--crossings",
    is_flag=True,
    help="In place of FILE: measure on this GPU where forms of serving calls cross, for all kernels.",
)
@click.option("--budget", type=Duration(), default="60s", show_default=True, help="Time, as in 60s or 5m.")
@click.option("--cold", is_flag=True, help="Take other arrays for each call: none are in the L2 cache.")
@click.option("--dry-run", is_flag=True, help="Print the table; leave the file as it is.")
@click.option("--resume", is_flag=True, help="Go on from the log of a run that ended early.")
@click.option(
    "--log", "log_file", type=click.Path(dir_okay=False, path_type=Path), help="The log; in the cache, if not given."
)
@seed_option("Seed of random arrays and of dropout.")
@input_option
@define_option
@imports_option
@format_option
def command(*, file: Path | None, crossings: bool, dry_run: bool, **given: Any) -> None:
    """Time candidates for a variant's schedule on this GPU, on random arrays of the sizes given. If one beats what the
    file has for sure, it is written there as a plain schedule; nothing else in the file changes.

    The candidates are those in the schedule's braces, as in block_kv = {64, 128}; where it has none, the tiles that
    attncc would choose among, and others near them. The IO model orders them. Those that spill registers are left out.
    What is to be written is first compared with attention in fp64.

    Ctrl-C ends the timing: what was found by then counts, and --resume goes on from there.

    \b
    attncc tune mine.attn --head-dim 128
    attncc tune mine.attn --pass backward --budget 2m
    attncc tune mine.attn --dry-run --q-len 1 --kv-len 8192 --kv-heads 8
    attncc tune --crossings
    """
    if crossings:
        check_alone(click.get_current_context())
        measure(given["budget"], dry_run=dry_run)
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE': a .attn file; or give --crossings")
    if not dry_run:
        check_replaceable(file)  # before a minute goes by
    session = _session(file, given)
    interrupted = _run(session, given["budget"])
    if why := session.log.trouble:
        click.echo(f"note: the log {session.log.path} lacks what came last: {why}", err=True)
    try:
        _print(session)
    finally:  # a pipe that nobody reads any more doesn't cost what was found
        written = not dry_run and _write(file, session, given)
    if not as_json():
        _say_the_end(file, session, written=written, interrupted=interrupted)
    for note in _notes(file, session.kernel, given) if written else ():
        click.echo(wrapped(f"note: {note}"), err=True)
    _report_wrong(session)
    if interrupted:
        raise Interrupted


# -------------------------------------------------------------------- before


def _session(file: Path, given: dict[str, Any]) -> Session:
    from ..runtime.cuda.driver import driver
    from ..runtime.store.store import Configuration
    from ..schedule.plan import Build
    from ..tune.candidates import TunedKernel
    from ..tune.model import Model, device_like
    from ..tune.session import Session
    from ..tune.work import Work

    device = driver().device(0)
    problem = given["problem"]
    specification = load_specification(file, {name: value for name, value in given.items() if name != "dtype"})
    target = target_here(given["dtype"], device)
    configuration = Configuration(given["dtype"], problem.head_dim, problem.value_head_dim)
    served, own = specification.serving(given["dtype"]), None
    with progress("analysing"):
        pass_name = pass_here(served, configuration, target, given, device)
        if pass_name in ("forward", "decode"):
            own = own_kernel_here(served, configuration, target, problem, device)
    lengths = _lengths(specification, given["lengths"], pass_name, target, problem.kv_len)
    tuned = TunedKernel(specification, Build(pass_name, target, *configuration, lengths), own)
    check_element_types(tuned.variant, given["given_inputs"])
    work = Work(tuned.variant, problem, given["dtype"], pass_name, given["given_inputs"], given["seed"])
    roofline, known = device_like(device.name, device.capability, device.multiprocessors)
    machine = _machine(work, tuned, cold=given["cold"])
    log = _log(tuned, work, machine, given)
    return Session(tuned, work, Model(problem, work.inputs, roofline, known), machine, log, given["budget"])


def _lengths(
    specification: Specification, given: tuple[int, int] | None, pass_name: str, target: str, keys: int
) -> tuple[int, int] | None:
    """The range of lengths that is tuned: the one given, or that of the file's schedule for so many keys; None: all.

    A usage error where a schedule for them couldn't be, or wouldn't run the call.
    """
    from ..schedule.plan import BY_LENGTH

    ranges = {
        item.lengths: item.name
        for item in specification.schedules
        if (item.pass_name, item.target) == (pass_name, target) and item.lengths is not None
    }
    if given is None:
        return next((own for own in ranges if own[0] <= keys <= own[1]), None)
    first, last = given
    if pass_name not in BY_LENGTH:
        raise click.UsageError(f"--lengths: the pass {pass_name}, which runs the call, has no ranges of lengths")
    if not first <= keys <= last:
        raise click.UsageError(f"--lengths {first}..{last} leaves out the {keys} keys of the call, --kv-len")
    for own, name in ranges.items():
        if own != given and own[0] <= last and first <= own[1]:
            raise click.UsageError(f"--lengths {first}..{last} overlaps {own[0]}..{own[1]}, of the schedule {name}")
    return given


def _machine(work: Work, tuned: TunedKernel, *, cold: bool) -> Machine:
    from ..tune.gpu import Gpu

    return Gpu(work, tuned, cold=cold)


def _log(tuned: TunedKernel, work: Work, machine: Machine, given: Mapping[str, Any]) -> Log:
    from ..runtime.store.cache import folder
    from ..tune.log import Log, name_of

    identity = _identity(tuned, work, machine, given)
    path = given["log_file"] or folder() / "tune" / name_of(identity)
    if given["resume"]:
        return Log.resume(path, identity)
    with writing(path):
        more = {"environment": dict(machine.environment()), "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        return Log.begin(path, identity, more)


def _identity(tuned: TunedKernel, work: Work, machine: Machine, given: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs must share for one to go on from the other."""
    import numpy as np

    environment = machine.environment()
    arrays = {
        name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in work.given.items()
    }
    return {
        "variant": _meaning(work.variant),
        "schedule": None if tuned.held is None else dict(tuned.held.settings),
        "build": asdict(tuned.build),
        "problem": asdict(work.problem),
        "inputs": arrays,
        "seed": work.seed,
        "cold": given["cold"],
        **{name: environment.get(name) for name in ("device", "nvrtc", "attncc")},
    }


def _meaning(variant: Variant) -> str:
    """A hash that is the same for the same variant."""
    from ..schedule.plan_json import to_json

    return hashlib.sha256(json_text(to_json(replace(variant, documentation=""))).encode()).hexdigest()


# -------------------------------------------------------------------- the run


def _run(session: Session, budget: float) -> bool:
    """True if Ctrl-C ended it: what was found until then counts."""
    try:
        with _told(budget) as session.say:
            session.run()
    except (Interrupted, KeyboardInterrupt):
        session.say = lambda what: None
        session.conclude(timing=False)
        return True
    return False


@contextmanager
def _told(budget: float) -> Iterator[Say]:
    """A bar of the budget's seconds."""
    begin, shown = time.monotonic(), 0
    with progress("tuning:", max(int(budget), 1)) as advance:

        def say(what: str) -> None:
            nonlocal shown
            while shown < min(int(time.monotonic() - begin), int(budget)):
                shown += 1
                advance(what)

        yield say


# -------------------------------------------------------------------- after


def _print(session: Session) -> None:
    from ..tune.report import Report

    report = Report(session)
    if as_json():
        click.echo(json_text(report.to_json(), indent=2))
        return
    rich_console().print(report.table())
    if hidden := report.hidden():
        click.echo(f"and {hidden} more, which --format json has")
    click.echo(wrapped(f"\n{session.work.pass_name} on {session.machine.name}: {report.sentence()}"))


def _write(file: Path, session: Session, given: Mapping[str, Any]) -> bool:
    """Whether the file changed. AttnccError A528 if someone else changed what was tuned, meanwhile."""
    from ..spec_text import read
    from ..tune.candidates import settings_of
    from ..tune.write import written

    winner = session.winner
    if winner is None or winner.schedule is None:
        return False
    if why := _changed(file, session.kernel, given):
        raise AttnccError(
            Diagnostic(
                "A528",
                f"{printable(str(file))} changed while it was tuned, and stays as it is: {why}",
                help=f"tune it again, or write what was found: {settings_of(winner.schedule)}",
            )
        )
    replace_text(file, written(read(file), winner.schedule))
    return True


def _notes(file: Path, tuned: TunedKernel, given: Mapping[str, Any]) -> Iterator[str]:
    """What the schedule that was written is to calls that weren't tuned: it is for those of all head dims, and of all
    numbers of rows."""
    from ..checks import schedule_errors
    from ..compiler import load_specification
    from ..schedule.plan import LEAST_ROWS, NARROW

    _, program = load_specification(file, tuned.variant.name, given["defines"], given["allow_imports"])
    if why := next((item.message for item in schedule_errors(program)), ""):
        yield f"with other head dims it can't be, and attncc check says so: {why}"
    if tuned.build.is_wide:
        yield f"its family has head dims above {NARROW} alone: build others without this schedule"
    if tuned.has_own_kernels and tuned.build.pass_name == "decode":
        rows = f"{LEAST_ROWS[0]} rows and more (queries times the query heads of a key head)"
        yield f"decode calls of {rows} had kernels of their own, and run this one now; --lengths restricts it"
    elif tuned.has_own_kernels:
        yield "forward calls of few blocks of queries had a kernel of their own, and run this one or decode now"


def _changed(file: Path, tuned: TunedKernel, given: Mapping[str, Any]) -> str:
    """What the file says otherwise now of the kernel that was tuned; empty if nothing. Comments and all else may be
    other ones."""
    from ..compiler import load_specification

    try:
        specification, _ = load_specification(file, tuned.variant.name, given["defines"], given["allow_imports"])
    except AttnccError as error:
        return error.diagnostics[0].message
    now = replace(tuned, specification=specification)
    if _meaning(now.variant) != _meaning(tuned.variant):
        return f"the variant {tuned.variant.name} means something else"
    if now.held != tuned.held:
        return "it has another schedule for these calls"
    return ""


def _say_the_end(file: Path, session: Session, *, written: bool, interrupted: bool) -> None:
    from ..tune.report import Report

    line = Report(session).line()
    if written:
        click.echo(wrapped(f"written to {printable(str(file))}: {line}"))
    else:
        click.echo(wrapped("the file is as it was" + (f"; without --dry-run it would get {line}" if line else "")))
    if not written and (interrupted or session.is_cut_short):
        click.echo("--resume goes on from here")


def _report_wrong(session: Session) -> None:
    """A904 for a kernel whose result was wrong: it wasn't written, but it is a defect."""
    wrong = [trial for trial in session.trials.values() if trial.trouble.startswith("wrong:")]
    if wrong:
        what = f"{session.work.variant.name} with {wrong[0].tiles} on {session.machine.name}: {wrong[0].trouble}"
        raise AttnccError(Diagnostic("A904", what, help="please report this"))
