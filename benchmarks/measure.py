"""What benchmarks share: how they time, what they check, and the records that they write.

Timing is `attncc bench`'s (`attncc.runtime.cuda.timing`, which says how), here with the meters of NVML. Where the tree
is a copy without its history, ATTNCC_COMMIT names the commit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pynvml  # noqa: F401  (no benchmark is recorded without clock and power)
import torch

from attncc.bench import environment as bench_environment
from attncc.bench.stopwatch import TorchStopwatch
from attncc.runtime.cuda import timing
from attncc.runtime.cuda.timing import Launch, Timing

__all__ = ["RESULTS", "Timing", "check", "compare", "environment", "graph_of", "record", "table", "tflops", "write"]

C = TypeVar("C")

RESULTS = Path(__file__).resolve().parent / "results"


def compare(
    launches: Mapping[str, Launch], rounds: int = 9, window_ms: float = 60, sustained_s: float = 0.7, seed: int = 0
) -> dict[str, Timing]:
    """Times candidates for the same work against each other."""
    return timing.compare(
        launches, TorchStopwatch(), rounds=rounds, window_ms=window_ms, sustained_s=sustained_s, seed=seed
    )


def graph_of(calls: Sequence[Callable[[], Any]]) -> Launch:
    """All calls as one CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        held = [call() for call in calls]

    def launch() -> torch.Tensor:
        """Keeps the calls, and so their inputs, as long as the graph that reads them."""
        assert calls
        graph.replay()
        return held[0]

    return launch


def check(what: object, errors: Mapping[str, float], limit: float) -> None:
    """SystemExit where a candidate's relative error is above the limit, or NaN: nothing is timed that is wrong."""
    wrong = {name: error for name, error in errors.items() if not error < limit}
    if wrong:
        raise SystemExit(f"{what}: wrong results, nothing is timed: {wrong}")


def tflops(flops: float, timing: Timing) -> dict[str, float]:
    """Useful TFLOP/s of the windows and sustained, as fields of a row."""
    return {
        "tflops": flops / timing.milliseconds * 1e-9,
        "sustained_tflops": flops / timing.sustained_milliseconds * 1e-9,
    }


# -------------------------------------------------------------------- records


def environment() -> dict[str, Any]:
    """Device, driver, versions and commit."""
    return bench_environment.environment() | {
        "commit": os.environ.get("ATTNCC_COMMIT") or _git("rev-parse", "HEAD"),
        "modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*arguments: str) -> str | None:
    return bench_environment.output("git", *arguments, folder=RESULTS.parent)


def write(name: str, rows: list[dict[str, Any]], folder: Path = RESULTS) -> Path:
    """Writes `<name>_<device>_<day>.json` and returns its path."""
    where = environment()
    device = where["device"].lower().replace("nvidia ", "").replace(" ", "_")
    path = folder / f"{name}_{device}_{where['time'][:10]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": where, "rows": rows}, indent=1) + "\n")
    return path


def record(
    name: str,
    cases: Iterable[C],
    measure: Callable[[C], list[dict[str, Any]]],
    summary: Callable[[list[dict[str, Any]]], str],
    folder: Path,
) -> None:
    """Measures case after case, prints and writes what is done after each, and prints a summary of all last."""
    rows: list[dict[str, Any]] = []
    path = None
    for case in cases:
        measured = measure(case)
        print(summary(measured), flush=True)
        rows += measured
        path = write(name, rows, folder)
        torch.cuda.empty_cache()
    print(f"{path}\n{summary(rows)}")


def table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Aligned columns; floats with three significant digits or none after the point."""
    shown = [tuple(_cell(cell) for cell in row) for row in (header, *rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)


def _cell(value: Any) -> str:
    return (f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}") if isinstance(value, float) else str(value)
