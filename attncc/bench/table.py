"""Measured cases as text of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..runtime.cuda.timing import ROUNDS, WINDOW_MS

if TYPE_CHECKING:
    from .measure import Measured, Row

COLUMNS = 80
_WIDTHS = {"ms": 8, "TFLOP/s": 7, "x attncc": 8, "95%": 11, "MHz": 5, "off by": 7}


def text(measured: Sequence[Measured], device: str, rounds: int = ROUNDS) -> str:
    """A row for each candidate and length, and what the numbers are."""
    case = measured[0].case
    problem = case.problem
    dims = ":".join(map(str, dict.fromkeys((problem.head_dim, problem.value_head_dim))))
    title = (
        f"{case.variant.name}, {case.pass_name}, {case.dtype}, {problem.num_heads} heads over {problem.num_kv_heads} "
        f"key heads, head dim {dims}, on {device}"
    )
    lines = [*textwrap.wrap(title, COLUMNS), "", _line("length", "with", *_WIDTHS)]
    lines += [line for item in measured for line in _case(item)]
    lines += ["", *_forms(measured), *_troubles(measured), *textwrap.wrap(_footer(rounds), COLUMNS)]
    return "\n".join(lines)


def _case(measured: Measured) -> Iterator[str]:
    length = _length(measured)
    for row in measured.rows:
        yield _line(length, row.name, *_figures(row))
        length = ""


def _line(length: str, name: str, *cells: str) -> str:
    shown = "  ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS.values(), strict=False))
    return f"{length:>11}  {name:<6}  {shown}"


def _length(measured: Measured) -> str:
    problem = measured.case.problem
    return f"{problem.q_len}" if problem.q_len == problem.kv_len else f"{problem.q_len}:{problem.kv_len}"


def _figures(row: Row) -> tuple[str, ...]:
    timing = row.timing
    if timing is None or row.tflops is None:
        return ("wrong" if row.wrong else "-",)
    times, interval = "", ""
    if row.times_own is not None and row.times_own_interval is not None:
        low, high = row.times_own_interval
        times, interval = f"{row.times_own:.2f}", "" if low == high else f"{low:.2f}..{high:.2f}"
    clock = "" if timing.sm_clock_mhz is None else f"{timing.sm_clock_mhz:.0f}"
    milliseconds = f"{timing.milliseconds:.4g}" + "h" * timing.host_bound
    return milliseconds, f"{row.tflops:.4g}", times, interval, clock, f"{row.relative_error:.1e}"


def _forms(measured: Sequence[Measured]) -> Iterator[str]:
    """Which form and back end of each peer was the fastest."""
    for name in dict.fromkeys(row.name for item in measured for row in item.rows):
        forms: dict[str, list[str]] = {}
        for item in measured:
            for row in item.rows:
                if row.name == name and row.timing is not None and row.how:
                    forms.setdefault(row.how, []).append(_length(item))
        alone = len(forms) == 1
        said = "; ".join(how if alone else f"{', '.join(lengths)}: {how}" for how, lengths in forms.items())
        yield from _wrapped(name, said) if said else ()


def _troubles(measured: Sequence[Measured]) -> Iterator[str]:
    """Why what wasn't timed wasn't."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in measured:
        for row in item.rows:
            if row.trouble:
                found.setdefault((row.name, row.trouble), []).append(_length(item))
    for (name, trouble), lengths in found.items():
        yield from _wrapped(name, trouble if len(lengths) == len(measured) else f"{', '.join(lengths)}: {trouble}")


def _wrapped(name: str, said: str) -> list[str]:
    return textwrap.wrap(f"{name:<6}  {said}", COLUMNS, subsequent_indent=" " * 8)


def _footer(rounds: int) -> str:
    return (
        f"Times are medians of {rounds} windows of {WINDOW_MS:.0f} ms, those of all candidates in random turns. "
        "TFLOP/s count kept pairs alone. x attncc: the time as a multiple of attncc's, with the 95% interval of its "
        "median. off by: the relative error to fp64 attention. h: the host takes longer than the GPU, so this is its "
        "time."
    )
