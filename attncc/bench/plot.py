"""Measured cases as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .measure import Measured

COLORS = {"attncc": "#2f6f8f", "flex": "#e8a33d", "sdpa": "#7a7a7a", "fa4": "#b0413e"}


def save(measured: Sequence[Measured], device: str, path: Path) -> None:
    """Useful TFLOP/s over the length, with the 95% intervals of the medians. Needs matplotlib (ImportError without)."""
    drawn(measured, device).savefig(path)


def drawn(measured: Sequence[Measured], device: str) -> Any:
    """matplotlib's Figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    case = measured[0].case
    axes.set(title=f"{case.variant.name}, {case.pass_name}, {case.dtype}, {device}", ylabel="useful TFLOP/s")
    lengths = [_label(item) for item in measured]
    axes.set_xticks(range(len(lengths)), lengths)
    axes.set(xlabel="length" if len(lengths) > 1 else "")
    for name, points in _series(measured).items():
        places, values, errors = zip(*points, strict=True)
        low, high = zip(*errors, strict=True)
        axes.errorbar(places, values, yerr=(low, high), marker="o", capsize=3, label=name, color=COLORS.get(name))
    axes.set_ylim(0, None)  # only now: a limit that is set ends autoscaling
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)
    return figure


def _label(measured: Measured) -> str:
    problem = measured.case.problem
    return f"{problem.q_len}" if problem.q_len == problem.kv_len else f"{problem.q_len}:{problem.kv_len}"


def _series(measured: Sequence[Measured]) -> dict[str, list[tuple[int, float, Any]]]:
    """For each candidate: place, TFLOP/s, and how far below and above the interval goes."""
    found: dict[str, list[tuple[int, float, Any]]] = {}
    for place, item in enumerate(measured):
        for row in item.rows:
            if row.timing is None or row.tflops is None:
                continue
            low, high = (row.tflops * row.timing.milliseconds / end for end in reversed(row.timing.interval))
            found.setdefault(row.name, []).append((place, row.tflops, (row.tflops - low, high - row.tflops)))
    return found
