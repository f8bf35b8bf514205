"""`attncc tune --crossings` from the command line to the cache, on a simulated GPU."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from attncc.cli import attncc
from attncc.cli.interrupts import Interrupted
from attncc.kernels.crossings import Crossings
from attncc.runtime.cuda.driver import Device
from attncc.runtime.store.crossings import Measured, keep, kept, path_of
from attncc.tune.points import Sample
from attncc.version import __version__

NAME = "NVIDIA H200"


def run(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(attncc, ["tune", *arguments])
    assert result.exit_code == status, result.output
    return result


class Gpu:
    """The decode kernel is faster from 700 keys on, and nothing else makes a difference. `after`: windows until Ctrl-C
    is pressed."""

    after: int | None = None
    windows = 0

    def __init__(self) -> None:
        self.device, self.multiprocessors = Device(0, NAME, 90, 132, 50 << 20, 0), 132

    def about(self) -> Mapping[str, Any]:
        return {"measured": "2026-11-30", "attncc": __version__}

    def clock(self) -> float:
        return self.windows * 0.01

    def prepare(self) -> None: ...

    def form(self, sample: Sample, crossings: Crossings) -> Hashable:
        return sample.kv_len >= crossings.split_keys or sample.causal

    def window(self, sample: Sample, crossings: Crossings) -> float:
        type(self).windows += 1
        if self.windows == self.after:
            raise Interrupted
        return 1.0 if self.form(sample, crossings) == (sample.kv_len >= 700 or sample.causal) else 1.1


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Gpu]:
    class Own(Gpu): ...

    monkeypatch.setenv("ATTNCC_CACHE", str(tmp_path))
    monkeypatch.setattr("attncc.tune.crossings_gpu.CrossingsGpu", Own)
    return Own


def test_what_it_finds_is_kept() -> None:
    said = run("--crossings").output
    assert "1 of 13 crossing points moved. Calls that get another form round otherwise" in " ".join(said.split())
    found = kept(NAME)
    assert found is not None and found.crossings == Crossings(split_keys=600)
    again = run("--crossings").output
    assert "all crossing points stay" in " ".join(again.split())
    assert kept(NAME) == found


def test_a_dry_run() -> None:
    said = " ".join(run("--crossings", "--dry-run").output.split())
    assert "Nothing is written; without --dry-run" in said
    assert not path_of(NAME).exists()


def test_as_json() -> None:
    found = json.loads(run("--crossings", "--format", "json").output)
    assert (found["before"]["split_keys"], found["crossings"]["split_keys"]) == (Crossings().split_keys, 600)
    assert set(found["points"]) == set(Crossings._fields)
    point = found["points"]["split_keys"]
    assert point["interval"][0] <= point["gain"] <= point["interval"][1]
    ratios = {(call["kv_len"], call["q_len"]): call["ratio"] for call in point["calls"]}
    assert ratios[512, 128] == pytest.approx(1 / 1.1)


def test_points_of_another_version_are_measured_from_the_usual_ones() -> None:
    keep(Measured(NAME, Crossings(short_run=40), {"attncc": "0.0.1"}))
    run("--crossings")
    found = kept(NAME)
    assert found is not None and found.crossings == Crossings(split_keys=600)


def test_ctrl_c_keeps_what_was_found(gpu: type[Gpu]) -> None:
    """In the last of its windows, the second time that it measures the point."""
    run("--crossings", "--dry-run")
    gpu.after, gpu.windows = gpu.windows, 0
    with pytest.raises(Interrupted):
        run("--crossings")
    found = kept(NAME)
    assert found is not None and found.crossings.split_keys == 600


def test_ctrl_c_before_anything_was_found(gpu: type[Gpu], capsys: pytest.CaptureFixture[str]) -> None:
    gpu.after = 3
    with pytest.raises(Interrupted):
        attncc.main(["tune", "--crossings"], standalone_mode=False)
    assert "nothing was measured" in " ".join(capsys.readouterr().out.split())
    assert not path_of(NAME).exists()


def test_too_short() -> None:
    assert "Try a longer --budget" in " ".join(run("--crossings", "--budget", "0.001").output.split())
    assert not path_of(NAME).exists()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("--seed", "1"), "--seed"),
        (("--pass", "backward"), "--pass"),
        (("--q-len", "1"), "--q-len"),
        (("-D", "a=1"), "-D"),
    ],
)
def test_options_of_tuning_a_file(given: tuple[str, ...], named: str) -> None:
    assert f"{named} doesn't go with --crossings" in " ".join(run("--crossings", *given, status=2).output.split())


def test_a_file(tmp_path: Path) -> None:
    spec = tmp_path / "mine.attn"
    spec.write_text("attn 1\nvariant mine {}\n")
    assert "FILE doesn't go with --crossings" in " ".join(run("--crossings", str(spec), status=2).output.split())


def test_neither() -> None:
    assert "a .attn file; or give --crossings" in " ".join(run(status=2).output.split())


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    said = run("--crossings", status=1)
    assert "A503" in said.output
