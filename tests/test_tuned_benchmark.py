"""`benchmarks/tuned.py` from its command line to its record, on a simulated GPU: nothing is compiled, all else runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

from attncc.runtime.cuda.driver import Device
from attncc.schedule.plan import KernelPlan
from attncc.tune.session import Session
from benchmarks import exhaustive, tuned
from benchmarks.tuned_cases import CASES, Case, chosen
from tests.unit.tune.machines import SimulatedMachine, made, never
from tests.unit.tune.simulated import Simulated

Run = Callable[..., list[dict[str, Any]]]


def times(plan: KernelPlan) -> float:
    """Least at 128 x 80 of a Hopper kernel; portable ones take twice as long."""
    far = abs(plan.block_q - 128) / 200 + abs(plan.block_kv - 80) / 300 + abs(plan.stages - 3) / 50
    return 0.2 * (1 + far) * (1 if plan.family == "hopper" else 2)


def spills(plan: KernelPlan) -> bool:
    return plan.block_kv > 128


class Gpu:
    def device(self, _: int) -> Device:
        return Device(0, "NVIDIA H200", 90, 132, 60 << 20, 0)


class Here:
    """In place of the process beside: the same, without one."""

    def __init__(self, cases: object, folder: Path) -> None:
        self.cache, self.ended = folder / "cache", False

    def troubles(self, case: Case) -> dict[str, str]:
        return exhaustive.troubles(case)

    def end(self) -> None:
        self.ended = True


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    if "pynvml" not in sys.modules:
        monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    from benchmarks import measure

    seeds = iter(range(100))

    def machine(work: Any, kernel: Any) -> SimulatedMachine:
        return SimulatedMachine(kernel, work, times, wrong=never, seed=next(seeds))

    monkeypatch.setattr(measure, "environment", lambda: {"device": "NVIDIA H200", "time": "2026-11-29T00:00"})
    monkeypatch.setattr(tuned, "driver", Gpu)
    monkeypatch.setattr(tuned, "Beside", Here)
    monkeypatch.setattr(tuned, "Gpu", machine)
    monkeypatch.setattr(tuned, "Session", partial(Session, make=made(spills)))
    monkeypatch.setattr(exhaustive, "settled", made(spills))

    def command(*arguments: object) -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["tuned", "--out", str(tmp_path), *map(str, arguments)])
        tuned.main()
        rows: list[dict[str, Any]] = json.loads((tmp_path / "tuned_h200_2026-11-29.json").read_text())["rows"]
        return rows

    return command


def test_the_tuner_beside_all_tiles(run: Run) -> None:
    (row,) = run("--only", "gelu_80")
    assert row["best"] >= 0.99 and row["gain"] > 0.01 and not row["again"]
    assert "block_q = 128, block_kv = 80, stages = 3" in row["settings"]
    assert (row["self_wins"], row["self_tries"]) == (0, 2)
    assert row["sound"] < row["tiles"] and row["seconds"] > 0
    assert row["families"]["portable"] > 1.9 * row["families"]["hopper"] > 1.8


def test_what_the_tuner_misses_is_seen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that stops at once: the record says that a tile takes less than 0.99 of what was chosen."""
    monkeypatch.setattr("attncc.tune.session.MOST", 1)
    monkeypatch.setattr("attncc.tune.session.near", lambda kernel, plan: ())
    (row,) = run("--only", "relative_causal_48")
    assert row["best"] < 0.99


def test_a_record_is_gone_on_from(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run("--only", "gelu_80")
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({"rows": first}))
    both = run("--only", "gelu_80,backward_80", "--keep", kept)
    assert both[0] == first[0] and [row["case"] for row in both] == ["gelu_80", "backward_80"]
    run("--keep", kept, "--seconds", 0)
    assert "no time for backward_80" in capsys.readouterr().out


def test_a_launch_that_beats_itself_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of the two is placed badly, and every window says so."""
    monkeypatch.setattr(SimulatedMachine, "launch", lambda machine, _: Simulated(next(slower)))
    slower = iter([1.0, 0.9])
    case = CASES[0]
    machine = SimulatedMachine(case.kernel, case.work, times, wrong=never)
    assert tuned.beats_itself(machine, case.kernel.specification)


def test_the_process_beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(exhaustive, "settled", made(spills))
    monkeypatch.setattr(exhaustive.os, "nice", lambda more: more)
    monkeypatch.setattr(sys, "argv", ["exhaustive", "--only", "gelu_80,softcap_192", "--out", str(tmp_path)])
    exhaustive.main()
    assert {path.name for path in tmp_path.iterdir()} == {"gelu_80.json", "softcap_192.json"}
    found = json.loads((tmp_path / "gelu_80.json").read_text())["troubles"]
    assert found == exhaustive.troubles(*chosen("gelu_80"))
    assert any(found.values()) and not all(found.values())


def test_a_process_that_fails_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    beside = tuned.Beside([CASES[0]], tmp_path)
    beside.end()
    with pytest.raises(SystemExit, match="wasn't compiled"):
        beside.troubles(CASES[0])


def test_cases() -> None:
    assert len(CASES) == len({case.name for case in CASES}) == 10
    with pytest.raises(SystemExit, match="no such case: nothing"):
        chosen("nothing")
    assert all(len(list(exhaustive.grid(case))) >= 15 for case in CASES)
