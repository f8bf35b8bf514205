"""Nsight Compute around one process, and what it counted."""

from __future__ import annotations

import csv
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..diagnostics import AttnccError, Diagnostic
from .counters import Quantity, asked, names
from .job import Runs, write

SECONDS = 600  # that a run may take: each kernel runs once for each group of counters
_ELSEWHERE = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_FORBIDDEN = "ERR_NVGPUCTRPERM"
_MOST_LINES = 12  # of what ncu and the process said, in a diagnostic
# What counters mean depends on these: no clock is changed (a machine may forbid it, and bytes don't depend on it); the
# caches are emptied before each pass; kernels alone are run again, not the process.
_OPTIONS = (
    "--csv", "--print-units", "base", "--print-kernel-base", "function", "--clock-control", "none",
    "--cache-control", "all", "--replay-mode", "kernel", "--profile-from-start", "off",
    "--target-processes", "application-only",
)  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """What was counted of one launch: bytes by the name of a quantity."""

    kernel: str
    bytes: dict[str, int]


def find(given: Path | None) -> Path:
    """The executable. AttnccError A540 if there is none."""
    if given is not None:
        if _is_executable(given):
            return given
        raise _cannot_run(given, "no such program")
    found = shutil.which("ncu")
    if found is not None:
        return Path(found)
    for pattern in _ELSEWHERE:
        for path in sorted(Path("/").glob(pattern[1:]), reverse=True):
            if _is_executable(path):
                return path
    raise AttnccError(
        Diagnostic(
            "A540",
            "counters can't be read: Nsight Compute isn't installed",
            notes=(f"neither in PATH nor as {' or '.join(_ELSEWHERE)}",),
            help="install nsight-compute, or give the path of ncu with --ncu",
        )
    )


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _cannot_run(path: object, why: str) -> AttnccError:
    return AttnccError(Diagnostic("A540", f"{path} can't be run: {why}", help="give the path of ncu with --ncu"))


def count(ncu: Path, job: Runs, capability: int) -> list[Launch]:
    """What each launch of a call moved, in their order.

    AttnccError A540 if ncu is no program, A541 without permission for the counters, A542 if ncu or the call fails, or a
    counter is missing.
    """
    quantities = asked(capability)
    text, said, status = _counted(ncu, job, quantities)
    if _unknown(said, quantities):
        quantities = asked(capability, optional=False)
        text, said, status = _counted(ncu, job, quantities)
    rows, unknown = _rows(text), _unknown(said, quantities)
    if status or not rows or unknown:
        raise _failed(said, status, unknown)
    return _launches(rows, quantities, said)


def _counted(ncu: Path, job: Runs, quantities: Sequence[Quantity]) -> tuple[str, str, int]:
    """ncu's log, all that was said, and its status. AttnccError A541."""
    with tempfile.TemporaryDirectory(prefix="attncc-measure-") as folder:
        path, log = Path(folder) / "job", Path(folder) / "log"
        write(job, path)
        process = [sys.executable, "-m", "attncc.measure.job", str(path)]
        said, status = _run(
            [str(ncu), *_OPTIONS, "--metrics", ",".join(names(quantities)), "--log-file", str(log), *process]
        )
        text = log.read_text("utf-8", "replace") if log.exists() else ""
    said = f"{text}\n{said}"
    if _FORBIDDEN in said:
        raise _forbidden()
    return text, said, status


def _unknown(said: str, quantities: Sequence[Quantity]) -> list[str]:
    """The counters that this version of ncu doesn't know."""
    return [name for name in names(quantities) if re.search(rf"find metric\W+{re.escape(name)}", said)]


def _run(command: list[str]) -> tuple[str, int]:
    """What it said on both streams, and its status. Whatever ends the wait ends the process, and that which it watches.
    AttnccError A540 if it is no program."""
    package = Path(__file__).resolve().parent.parent.parent
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise _cannot_run(command[0], str(error.strerror)) from None
    try:
        said = "\n".join(process.communicate(timeout=SECONDS))
    except subprocess.TimeoutExpired:
        return f"it took longer than {SECONDS} s", 1
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return said, process.returncode


def _rows(text: str) -> list[dict[str, str]]:
    """Of the table, which stands behind lines that begin with ==. None of what is no table."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    try:
        return list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    except csv.Error:
        return []


def _launches(rows: Sequence[dict[str, str]], quantities: Sequence[Quantity], said: str) -> list[Launch]:
    values: dict[str, dict[str, float]] = {}
    kernels: dict[str, str] = {}
    for row in rows:
        number = row.get("ID") or ""
        kernels[number] = (row.get("Kernel Name") or "").partition("(")[0]
        value = _number(row.get("Metric Value") or "")
        if value is not None:
            values.setdefault(number, {})[row.get("Metric Name") or ""] = value
    missing = [name for name in names(quantities) if any(name not in values.get(number, {}) for number in kernels)]
    if missing:
        raise _failed(said, 0, missing)
    return [
        Launch(kernel, {quantity.name: quantity.bytes(values[number]) for quantity in quantities})
        for number, kernel in kernels.items()
    ]


def _number(text: str) -> float | None:
    """As ncu prints it: 1,234 in some locales; n/a or nan where there is no value."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


def _forbidden() -> AttnccError:
    return AttnccError(
        Diagnostic(
            "A541",
            "this user may not read the GPU's counters",
            notes=(f"Nsight Compute says {_FORBIDDEN}: the driver keeps them for administrators",),
            help="run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0 (see the page of A541)",
        )
    )


def _failed(said: str, status: int, missing: Sequence[str]) -> AttnccError:
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith(("==PROF==", '"'))]
    help_ = "attncc run --device cuda tells whether the call itself runs; `ncu --query-metrics` lists counters"
    if option := re.search(r"unrecogni[sz]ed option '?(--[\w-]+)", said):
        what, help_ = (
            f"it doesn't know the option {option[1]}",
            "install a newer Nsight Compute, or name one with --ncu",
        )
    elif missing:
        what = f"it has no counter {', '.join(missing)}"
    elif status < 0:
        what = f"it was ended by {signal.strsignal(-status) or f'signal {-status}'}"
    else:
        what = f"its status is {status}" if status else "it saw no kernel"
    return AttnccError(
        Diagnostic("A542", f"Nsight Compute counted nothing: {what}", notes=tuple(lines[-_MOST_LINES:]), help=help_)
    )
