"""`benchmarks/model.py` from its command line to its record, on the CPU: only the clock stands in for a GPU's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from attncc.runtime.cuda.timing import Timing  # noqa: E402

SIZES = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "initializer_range": 0.3,
}  # fmt: skip


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    if "pynvml" not in sys.modules:
        monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    from benchmarks import measure, model

    monkeypatch.setattr(model, "DEVICE", "cpu")
    monkeypatch.setattr(model, "LLAMA", model.LLAMA | SIZES)
    monkeypatch.setattr(model, "peak", lambda run: float(len(run())))
    monkeypatch.setattr(model, "host_time", lambda run: 2.5)
    monkeypatch.setattr(model, "compare", clocked)
    monkeypatch.setattr(measure, "environment", lambda: {"device": "a CPU", "time": "2026-11-28T00:00", "commit": "c"})
    return model


def clocked(launches: dict[str, Any], rounds: int) -> dict[str, Timing]:
    for launch in launches.values():
        launch()
    return {
        name: Timing(2.0 + place, 0.0, 2.0, 1980.0, 600.0, (2.0 + place,) * rounds)
        for place, name in enumerate(launches)
    }


def recorded(benchmark: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    arguments = ["model", "--layers", "2", "--rounds", "3", "--out", str(folder), *options]
    monkeypatch.setattr("sys.argv", arguments)
    benchmark.main()
    return json.loads((folder / "model_a_cpu_2026-11-28.json").read_text())


def test_prefill_and_training_from_the_command_line(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = "--cases", "prefill-2x40,training-1x33"
    found = recorded(benchmark, tmp_path, monkeypatch, *cases, "--kinds", "sdpa,eager,attncc,nobody")
    assert found["environment"]["commit"] == "c"
    timed = [row for row in found["rows"] if "why" not in row]
    assert [(row["work"], row["candidate"]) for row in timed] == [
        (work, kind) for work in ("prefill", "training") for kind in ("sdpa", "eager", "attncc")
    ]
    assert all(row["relative_error"] == 0 for row in timed if row["candidate"] == "sdpa")
    assert all(0 < row["relative_error"] < 0.05 for row in timed if row["candidate"] == "attncc")
    assert [row["host_bound"] for row in timed] == 2 * [True, False, False]
    assert [row["times_first"][0] for row in timed] == 2 * [1.0, 2 / 3, 1 / 2]
    refused = [row for row in found["rows"] if "why" in row]
    assert [row["candidate"] for row in refused] == ["nobody", "nobody"] and "nobody" in refused[0]["why"]
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "nobody" not in line and str(tmp_path) not in line) <= 80
    assert len([line for line in lines if "not timed" in line]) == 4
    assert len([line for line in lines if " 2.0h " in line]) == 4


def test_what_is_wrong_is_not_timed_and_what_is_done_is_written(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "FARTHEST", 1e-9)
    found = recorded(benchmark, tmp_path, monkeypatch, "--cases", "prefill-1x20", "--kinds", "sdpa,attncc")
    assert ["why" in row for row in found["rows"]] == [False, True]
    assert found["rows"][1]["why"].startswith("wrong by")

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setitem(benchmark.WORKS, "training", interrupted)
    (tmp_path / "model_a_cpu_2026-11-28.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        recorded(benchmark, tmp_path, monkeypatch, "--cases", "prefill-1x20,training-1x20", "--kinds", "sdpa")
    assert len(json.loads((tmp_path / "model_a_cpu_2026-11-28.json").read_text())["rows"]) == 1
