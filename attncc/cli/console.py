"""What commands print: diagnostics to people or programs, steps with their times, progress bars."""

from __future__ import annotations

import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..diagnostics import Diagnostic, render_all, render_json
from ..notebook import PATIENCE, started_by_a_cell

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = "attncc.format"  # key in click's `ctx.meta`: how diagnostics are printed
SECONDS_A_LINE = 10.0  # at least, between lines of progress
MOST_ERRORS = 20  # that are shown as text: more of them help nobody
COLUMNS = 80  # of what commands print where no terminal says more
_COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}


def as_json() -> bool:
    """Whether `--format json` was given."""
    return bool(click.get_current_context().meta.get(FORMAT) == "json")


def report(diagnostics: Sequence[Diagnostic], *, err: bool = False) -> None:
    """Prints diagnostics: as text with carets to stderr, the first `MOST_ERRORS` of the errors; or with `--format json`
    all as one JSON list to stdout.

    `err`: the list too goes to stderr, where the command prints its own result to stdout.
    """
    if as_json():
        click.echo(render_json(diagnostics), err=err)
        return
    errors = [item for item in diagnostics if item.severity == "error"]
    left_out = {id(item) for item in errors[MOST_ERRORS:]}
    for diagnostic in diagnostics:
        if id(diagnostic) in left_out:
            continue
        first, _, rest = render_all([diagnostic]).partition("\n")
        click.secho(first, fg=_COLORS[diagnostic.severity], bold=True, err=True)
        click.echo(rest + "\n" if rest else "", err=True)
    if left_out:
        click.secho(f"and {len(left_out)} more errors", fg=_COLORS["error"], bold=True, err=True)


def rich_console() -> Console:
    """A console as wide as the terminal, 80 columns where there is none."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else COLUMNS, highlight=False)


def wrapped(text: str, hanging: int = 0, columns: int = COLUMNS) -> str:
    """Lines of at most 80 columns; what goes on from a line stands so many columns to the right of its begin."""
    return "\n".join(_wrapped_line(line, hanging, columns) for line in text.split("\n"))


def _wrapped_line(line: str, hanging: int, columns: int) -> str:
    indent = len(line) - len(line.lstrip())
    return textwrap.fill(
        line.lstrip(),
        columns,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )


class Steps:
    """Prints one line for each step of a longer job: what was done, its result, how long it took."""

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Times its body; the body calls the yielded function with the result to print."""
        result: list[str] = []
        start = time.perf_counter()
        yield result.append
        if self.shown:
            head, *more = _beside("".join(result), f"{duration(time.perf_counter() - start):>8}")
            click.echo(f"{click.style(f'{name:<9}', bold=True)} {head}")
            for line in more:
                click.echo(f"{'':<9} {line}")


def _beside(text: str, note: str) -> list[str]:
    """Lines that fit beside the name of a step. The note stands to the right of the first line that has room for it."""
    width = COLUMNS - 10
    lines = wrapped(text, hanging=2, columns=width).split("\n")
    room = next((number for number, line in enumerate(lines) if len(line) + 2 + len(note) <= width), len(lines))
    lines[room : room + 1] = [f"{''.join(lines[room : room + 1]):<{width - len(note)}}{note}"]
    return lines


def duration(seconds: float) -> str:
    """Seconds for people: `640.0 ms`, `2.31 s`."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """A bar on stderr that appears once the work has taken a second, only on a terminal; in a notebook lines, a few.
    Yields `advance(text)`, to be called after each of `total` parts; None: how far it is can't be told."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    if started_by_a_cell():
        with _lines(label, total) as advance:
            yield advance
        return
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    visible_from = time.monotonic() + PATIENCE

    class Late(Progress):
        """Its own thread draws it ten times a second: nobody has to advance it for it to appear."""

        def get_renderables(self) -> Iterable[RenderableType]:
            if time.monotonic() >= visible_from:
                yield from super().get_renderables()

    counts = () if total is None else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *counts, TimeElapsedColumn())
    with Late(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda text: bar.update(task, advance=1, description=f"{label} {text}")


@contextmanager
def _lines(label: str, total: int | None) -> Iterator[Callable[[str], None]]:
    """The label once the work has taken a second; later how many parts are done, now and then."""
    done, said_at = 0, time.monotonic() + PATIENCE
    first = threading.Timer(PATIENCE, click.echo, (f"{label} …",), {"err": True})
    first.daemon = True
    first.start()

    def advance(text: str) -> None:
        nonlocal done, said_at
        done += 1
        if time.monotonic() >= said_at + SECONDS_A_LINE:
            said_at = time.monotonic()
            click.echo(f"{label} {done} of {total} {text}".rstrip(), err=True)

    try:
        yield advance
    finally:
        first.cancel()
