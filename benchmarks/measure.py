"""Timing on a GPU under its power limit, and a record of where it was done.

Where the tree is a copy without its history, ATTNCC_COMMIT names the commit.

A card at its power cap clocks by what ran just before, so short bursts after a rest flatter, and a light neighbour
lends its budget to the next kernel. Here every launch sequence has windows of its own: each window first settles
untimed, then is timed between events; the windows of all candidates come in random order, and the median counts. One
longer window for each candidate then records the SM clock and the mean power.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

Launch = Callable[[], object]
C = TypeVar("C")

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Timing:
    """Milliseconds per launch; `spread` is (slowest - fastest window) / median."""

    milliseconds: float
    spread: float
    sustained_milliseconds: float
    sm_clock_mhz: float
    watts: float


def compare(
    launches: Mapping[str, Launch], rounds: int = 9, window_ms: float = 60, sustained_s: float = 0.7, seed: int = 0
) -> dict[str, Timing]:
    """Times candidates for the same work against each other."""
    repeats = {name: _repeats(launch, window_ms) for name, launch in launches.items()}
    windows: dict[str, list[float]] = {name: [] for name in launches}
    order = np.random.default_rng(seed)
    for _ in range(rounds):
        for name in order.permutation(list(launches)):
            _launch(launches[name], repeats[name] // 2 + 1)  # settles the clock: these are not timed
            windows[name].append(_timed(launches[name], repeats[name]))
    return {name: _timing(launches[name], windows[name], sustained_s) for name in launches}


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


def _timing(launch: Launch, windows: list[float], sustained_s: float) -> Timing:
    median = statistics.median(windows)
    sustained, clock, watts = _sustained(launch, max(2, round(sustained_s * 1e3 / median)))
    return Timing(median, (max(windows) - min(windows)) / median, sustained, clock, watts)


def _launch(launch: Launch, repeats: int) -> None:
    for _ in range(repeats):
        launch()


def _timed(launch: Launch, repeats: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    _launch(launch, repeats)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / repeats


def _repeats(launch: Launch, window_ms: float) -> int:
    _launch(launch, 3)  # loads modules, compiles what compiles at run time
    return max(2, round(window_ms / _timed(launch, 3)))


def _sustained(launch: Launch, repeats: int) -> tuple[float, float, float]:
    """Milliseconds per launch, median SM clock over the second half, mean power from the energy counter."""
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties().uuid}")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    clocks = []
    joules = -pynvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3
    start.record()
    _launch(launch, repeats)
    end.record()
    while not end.query():
        clocks.append(pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM))
        time.sleep(0.01)
    joules += pynvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3
    seconds = start.elapsed_time(end) / 1e3
    clock = statistics.median(clocks[len(clocks) // 2 :]) if clocks else 0.0
    return seconds * 1e3 / repeats, clock, joules / seconds


# -------------------------------------------------------------------- records


def environment() -> dict[str, Any]:
    """Device, driver, versions and commit: what a number means nothing without."""
    properties = torch.cuda.get_device_properties()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "power_limit": _output("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader"),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": os.environ.get("ATTNCC_COMMIT") or _output("git", "rev-parse", "HEAD"),
        "modified": bool(_output("git", "status", "--porcelain", "--untracked-files=no")),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


_PACKAGES = ("torch", "triton", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cuda-nvrtc", "flash-attn-4", "numpy")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=RESULTS.parent)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""


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
    """Measures case after case, prints each as it is done, writes all rows, and prints their summary last."""
    rows = []
    for case in cases:
        measured = measure(case)
        print(summary(measured), flush=True)
        rows += measured
        torch.cuda.empty_cache()
    path = write(name, rows, folder)
    print(f"{path}\n{summary(rows)}")


def table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Aligned columns; floats with three significant digits or none after the point."""
    shown = [tuple(_cell(cell) for cell in row) for row in (header, *rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)


def _cell(value: Any) -> str:
    return (f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}") if isinstance(value, float) else str(value)
