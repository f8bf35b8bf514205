"""Campaigns of random variants: processes that crash or hang, a report that is there when a run is cut."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.emulator import kernel
from tests.random_variants import workers
from tests.random_variants.findings import Finding, Report, Verdict
from tests.random_variants.workers import Job, verdicts

KINDS = ("a", "b", "c")


def _check(seed: int, kind: str) -> Finding | bool:
    if kind == "b":
        match seed % 5:
            case 1:
                faulthandler.disable()  # the process is meant to die, and needn't say where
                os.abort()
            case 2:
                time.sleep(60)
            case 3:
                raise ValueError("no such thing")
            case 4:
                return Finding(seed, kind, "tiles", ("dq is off",))
    return kind != "c"


def _campaign(seeds: range, processes: int = 2, seconds: float = 60) -> dict[int, Verdict]:
    job = Job(_check, lambda seed: None, KINDS)
    return {found.seed: found for found in verdicts(job, iter(seeds), processes, time.monotonic() + seconds)}


def test_what_a_process_dies_of_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kernels of the variant, and other variants, are checked all the same."""
    monkeypatch.setattr(workers, "CHECK_SECONDS", 0.5)
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.1)
    found = _campaign(range(7))
    assert sorted(found) == list(range(7))
    for seed, verdict in found.items():
        wrong = seed % 5 != 0
        assert verdict.passes == {"a": "right", "b": "wrong" if wrong else "right", "c": "none"}
        assert len(verdict.findings) == wrong
    faults = {seed: str(found[seed].findings[0]) for seed in range(1, 5)}
    assert "ends its process with -6" in faults[1]
    assert "hangs" in faults[2]
    assert "ValueError: no such thing" in faults[3]
    assert faults[4] == "seed 4, b (tiles): dq is off"


def test_processes_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "VARIANTS", 2)
    assert sorted(_campaign(range(0, 45, 5), processes=1)) == list(range(0, 45, 5))


def test_a_campaign_ends_in_time() -> None:
    begun = time.monotonic()
    assert sorted(_campaign(range(2, 100), processes=1, seconds=1)) == []  # the first one sleeps
    assert time.monotonic() - begun < 10


def test_reports_have_a_line_for_each_variant(tmp_path: Path) -> None:
    """As soon as its verdict is there. A second run adds to them."""
    path = tmp_path / "report.jsonl"
    for seed in (5, 6):
        report, verdict = Report(path), Verdict(seed)
        verdict.add("a", True)
        verdict.add("b", Finding(seed, "b", "tiles", ("out is off",)) if seed == 6 else False)
        report.add(verdict)
        assert report.wrong == (seed == 6)
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["seed"], first["verdict"], first["passes"]) == (5, "right", {"a": "right", "b": "none"})
    assert (second["verdict"], second["faults"]) == ("wrong", ["seed 6, b (tiles): out is off"])


@pytest.mark.slow  # compiles what kernels share into a folder of its own
@pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")
def test_the_command_checks_variants(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    options = "--count", "1", "--seed", "95", "--kinds", "hopper", "--seconds", "300", "--report", str(report)
    command = [sys.executable, "-m", "tests.random_variants", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "0 of 1 variants are wrong (1 hopper)" in done.stdout
    assert json.loads(report.read_text())["passes"] == {"hopper": "right"}
