"""The plots of docs/io-analysis.md, and the command that measures what they show: predictions, cuts, claims."""

from __future__ import annotations

import json
import pickle
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from attncc.analysis.cost.roofline import DEVICES
from attncc.diagnostics import AttnccError, Diagnostic
from attncc.measure.job import Job, Runs, write
from attncc.measure.ncu import Launch
from attncc.runtime.cuda.driver import Device
from benchmarks.io_jobs import Jobs, StandardJob
from benchmarks.io_model import Compiled, Measurer, by_call, predictions, ratios
from benchmarks.io_points import SPECS, Call, Point, points
from docs import io_plots

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[1] / "docs" / "io-analysis.md"
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Rows:
    return predictions("h200", list(points()))


def test_every_point_has_a_kernel(found: Rows) -> None:
    assert not [row["trouble"] for row in found if "trouble" in row]
    assert len(SPECS) == len(set(SPECS)) == 20
    assert sum(row["sweep"] == "specs" for row in found) == 40


def test_bytes_fall_as_block_q_grows_and_hbm_stays(found: Rows) -> None:
    """The slope of Θ(N²d²/M), with M in proportion to block_q: keys and values pass by N / block_q times."""
    blocks, sizes = io_plots.curve(found, "block_q", "q_outer", "sm", "predicted")
    for block, size in zip(blocks, sizes, strict=True):
        tiles, row = -(-4096 // block), 64 * 2
        queries, out = 16 * tiles * block * row, 16 * 4096 * row  # Q comes in whole tiles
        assert size * 1e6 == tiles * 2 * 16 * 4096 * row + queries + out
    assert len(set(io_plots.curve(found, "block_q", "q_outer", "hbm", "predicted")[1])) == 1


def test_order_of_the_orders(found: Rows) -> None:
    """Twice the length: four times the bytes where N² counts, twice those of HBM of the tiled orders."""
    factors = (("sm", "q_outer", 4), ("sm", "kv_outer", 4), ("hbm", "standard", 4), ("hbm", "q_outer", 2))
    for kind, order, factor in factors:
        _, sizes = io_plots.curve(found, "length", order, kind, "predicted")
        assert sizes[-1] / sizes[-2] == pytest.approx(factor, rel=0.04)
    at_once = {order: io_plots.curve(found, "length", order, "hbm", "predicted")[1][-1] for order in io_plots.COLORS}
    assert at_once["q_outer"] == at_once["kv_outer"] < at_once["standard"]


def test_masks_skip_bytes(found: Rows) -> None:
    for pass_name in ("forward", "backward"):
        shares = io_plots.specs(found, pass_name)
        assert shares["full"] == (1, None)
        assert shares["block_diagonal"][0] < shares["sliding_window"][0] < 0.5
        assert 0.5 < shares["causal"][0] < 0.62


def test_plots_are_drawn(found: Rows, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    measured = [{**row, "measured": row["predicted"]} for row in found]
    for sweep in io_plots.AXES:
        io_plots.draw_sweep(measured, "somewhere", sweep, tmp_path / f"{sweep}.svg")
    io_plots.draw_specs(measured, "somewhere", tmp_path / "specs.svg")
    for path in sorted(tmp_path.iterdir()):
        assert "somewhere" in path.read_text("utf-8")
        assert (io_plots.FOLDER / path.name).exists()
        assert f"](io/{path.name})" in PAGE.read_text("utf-8")
    assert "1.000" in (tmp_path / "specs.svg").read_text("utf-8")


def launches(*kernels: str) -> list[Launch]:
    return [
        Launch(kernel, dict.fromkeys(("hbm_reads", "sm_reads"), number + 1)) for number, kernel in enumerate(kernels)
    ]


def test_launches_are_cut_by_call() -> None:
    mark = "spin_kernel"
    seen = launches("min_max_table", "a_forward", mark, "a_forward", "combine", mark, mark, "delta", "a_backward", mark)
    assert [len(item) for item in by_call(seen, 4)] == [2, 2, 0, 2]
    for wrong in (3, 5):
        with pytest.raises(SystemExit, match=f"launches of {wrong} calls.*min_max_table"):
            by_call(seen, wrong)
    with pytest.raises(SystemExit, match="launches of 1 calls"):
        by_call(launches("a_forward", mark, "b_forward"), 1)


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> Measurer:
    """Of a GPU that isn't there; nothing is compiled."""

    def compiled(call: Call) -> Compiled:
        if call.point.order != "standard":
            return Compiled(call, call.plan)
        return Compiled(call, None)

    monkeypatch.setattr(Compiled, "of", compiled)
    found = object.__new__(Measurer)
    found._ncu, found._capability, found.device = Path("ncu"), 90, DEVICES["h200"]
    return found


def test_rows_of_a_measured_sweep(monkeypatch: pytest.MonkeyPatch, measurer: Measurer) -> None:
    """One process for all calls, Algorithm 0 among them; a kernel that can't be, and a call that failed, are rows."""
    chosen = [
        Point("length", "full", length=256, head_dim=64),
        Point("length", "full", order="standard", length=256, head_dim=64),
        Point("block_q", "full", block_q=64, length=256, head_dim=64),
        Point("block_q", "full", block_q=17, length=256, head_dim=64),
    ]
    counted: list[Jobs] = []

    def count(executable: Path, job: Jobs, capability: int) -> list[Launch]:
        counted.append(pickle.loads(pickle.dumps(job)))
        mark = "spin_kernel"
        return launches("sink_gradient", "full_forward", mark, "gemm", "softmax", "gemm", mark, mark)

    monkeypatch.setattr("benchmarks.io_model.ncu.count", count)
    rows = measurer.rows([measurer.compiled(point) for point in chosen])
    (asked,) = (item.jobs for item in counted)
    assert [type(job) for job in asked] == [Job, StandardJob, Job]
    refused, own, standard, failed = rows
    assert "17" in refused["trouble"] and "failed" in failed["trouble"]
    assert own["measured"] == {"hbm_reads": 2, "sm_reads": 2}  # what isn't predicted isn't in the sum
    assert [item["predicted"] is None for item in own["kernels"]] == [True, False]
    assert own["predicted"] == Call(chosen[0], DEVICES["h200"]).predicted()
    assert standard["measured"]["hbm_reads"] == 4 + 5 + 6
    assert set(ratios(own)) == {"hbm_reads", "sm_reads"} and set(ratios(standard)) == {"hbm_reads"}
    assert ratios(own)["hbm_reads"] == 2 / own["predicted"]["hbm_reads"]


def test_the_process_goes_on_where_a_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    @dataclass(frozen=True)
    class Other:
        name: str

        def run(self) -> None:
            ran.append(self.name)
            if self.name == "bad":
                raise AttnccError(Diagnostic("A503", "no"))

    monkeypatch.setattr(Jobs, "_mark", staticmethod(lambda: ran.append("mark")))
    Jobs((Other("good"), Other("bad"), Other("last"))).run()
    assert ran == ["good", "mark", "bad", "mark", "last", "mark"]


def test_the_command_prints_ratios_and_writes_twice(
    monkeypatch: pytest.MonkeyPatch, measurer: Measurer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    if "pynvml" not in sys.modules:
        monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    from benchmarks import io_model, measure

    def count(executable: Path, calls: Jobs, capability: int) -> list[Launch]:
        """As predicted, but for the second call, and for Algorithm 0, which fails."""
        found = []
        for number, job in enumerate(calls.jobs):
            if isinstance(job, Job):
                call = Call(wanted[job.kernel.variant.name, job.work.pass_name], measurer.device)
                off = 1.1 if number == 1 else 1.0
                for name, sizes in call.launches(call.plan).items():
                    found.append(Launch(name, {quantity: round(size * off) for quantity, size in sizes.items()}))
            found.append(Launch("spin_kernel", {}))
        return found

    some = [point for point in points() if point.variant in ("full", "causal") and point.sweep == "specs"]
    wanted = {(point.variant, point.pass_name): point for point in some}
    more = [Point("length", "full", order="standard", length=256)]
    monkeypatch.setattr(io_model, "points", lambda: [*some, *more])
    monkeypatch.setattr(io_model, "Measurer", lambda executable: measurer)
    monkeypatch.setattr("benchmarks.io_model.ncu.count", count)
    monkeypatch.setattr(measure, "environment", lambda: {"device": "NVIDIA H200", "time": "2026-11-29T00:00"})
    monkeypatch.setattr(sys, "argv", ["io_model", "--out", str(tmp_path)])
    io_model.main()
    printed = capsys.readouterr().out
    assert "sm_reads: 3 of 4 within 2%" in printed and "hbm_reads: 3 of 4 within 5%" in printed
    assert "reductions: 2 of 2 within 2%" in printed and "1.100" in printed
    told = json.loads((tmp_path / "io_model_h200_2026-11-29.json").read_text())
    assert len(told["rows"]) == 5 and "trouble" in told["rows"][-1]
    assert io_plots.specs(told["rows"], "forward")["causal"][1] == pytest.approx(1.1, rel=1e-3)


def test_the_watched_process_knows_what_it_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`python -m benchmarks.io_model` is the module `__main__`, which no other process has."""
    pytest.importorskip("torch")
    if "pynvml" not in sys.modules:
        monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    seen: list[str] = []

    def count(executable: Path, job: Runs, capability: int) -> list[Launch]:
        write(job, tmp_path / "job")
        program = f"import pickle; print(pickle.loads(open({str(tmp_path / 'job')!r}, 'rb').read()))"
        seen.append(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        return launches("gemm", "spin_kernel")

    class Gpu:
        def device(self, _: int) -> Device:
            return Device(0, "NVIDIA H200", 90, 132, 60 << 20, 0)

    point = Point("length", "full", order="standard", length=256)
    monkeypatch.setattr("benchmarks.io_points.points", lambda: [point])
    monkeypatch.setattr("attncc.runtime.cuda.driver.driver", Gpu)
    monkeypatch.setattr("attncc.measure.ncu.find", lambda given: Path("ncu"))
    monkeypatch.setattr("attncc.measure.ncu.count", count)
    monkeypatch.setattr("benchmarks.measure.environment", lambda: {"device": "NVIDIA H200", "time": "2026-11-29T00:00"})
    monkeypatch.setattr(sys, "argv", ["io_model", "--out", str(tmp_path)])
    monkeypatch.delitem(sys.modules, "benchmarks.io_model", raising=False)
    runpy.run_module("benchmarks.io_model", run_name="__main__")
    assert len(seen) == 1 and "StandardJob" in seen[0]
