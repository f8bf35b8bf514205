"""The plots of docs/io-analysis.md, and the command that measures what they show: predictions, cuts, claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attncc.analysis.cost.roofline import DEVICES
from attncc.measure.ncu import Launch
from benchmarks.io_model import Measurer, by_call, predictions
from benchmarks.io_points import SPECS, Call, Point, points
from docs import io_plots

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
        tiles, rest = -(-4096 // block), 2 * 16 * 4096 * 64 * 2 + 16 * 4096 * 4
        assert size * 1e6 == tiles * 2 * 16 * 4096 * 64 * 2 + rest
    assert len(set(io_plots.curve(found, "block_q", "q_outer", "hbm", "predicted")[1])) == 1


def test_order_of_the_orders(found: Rows) -> None:
    """Twice the length: four times the bytes where N² counts, twice those of HBM of the tiled orders."""
    factors = (("sm", "q_outer", 4), ("sm", "kv_outer", 4), ("hbm", "standard", 4), ("hbm", "q_outer", 2))
    for kind, order, factor in factors:
        _, sizes = io_plots.curve(found, "length", order, kind, "predicted")
        assert sizes[-1] / sizes[-2] == pytest.approx(factor, rel=0.04)
    at_once = {order: io_plots.curve(found, "length", order, "hbm", "predicted")[1][-1] for order in io_plots.COLORS}
    assert at_once["q_outer"] < at_once["kv_outer"] < at_once["standard"]


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
    return [Launch(kernel, {"hbm_reads": 1}) for kernel in kernels]


def test_launches_are_cut_by_call() -> None:
    seen = launches("min_max_table", "a_forward", "combine", "a_forward", "delta", "a_backward", "dq_sum", "b_forward")
    cut = by_call(seen, ["a_forward", "a_forward", "a_backward", "b_forward"])
    assert [len(item) for item in cut] == [3, 1, 3, 1]
    with pytest.raises(ValueError, match="weren't seen"):
        by_call(seen, ["a_forward", "a_forward", "b_forward", "a_backward"])
    with pytest.raises(ValueError, match="weren't seen"):
        by_call(launches("a_forward", "other"), ["a_forward"])


def test_rows_of_a_measured_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process for all calls of attncc, one each for Algorithm 0; a kernel that can't be is a row that says so."""
    measurer = object.__new__(Measurer)
    measurer.device = DEVICES["h200"]
    jobs = []

    def count(job: Any) -> list[Launch]:
        jobs.append(job)
        names = ["full_forward"] * 2 if hasattr(job, "jobs") else ["gemm", "softmax", "gemm"]
        return launches(*names)

    class Compiled:
        def __init__(self, call: Call) -> None:
            self.call, self.plan, self.own = call, call.plan, "full_forward"

        @classmethod
        def of(cls, call: Call) -> Compiled:
            return cls(call)

    monkeypatch.setattr(measurer, "_count", count)
    monkeypatch.setattr("benchmarks.io_model.Compiled", Compiled)
    small = {"length": 256, "head_dim": 64}
    chosen = [Point("length", "full", **small), Point("length", "full", order="standard", **small)]
    chosen += [Point("block_q", "full", block_q=64, **small), Point("block_q", "full", block_q=17, **small)]
    measured = measurer.rows(chosen)
    assert len(jobs) == 2
    assert sorted(row["measured"]["hbm_reads"] for row in measured if "measured" in row) == [1, 1, 3]
    assert ["17" in row["trouble"] for row in measured if "trouble" in row] == [True]
