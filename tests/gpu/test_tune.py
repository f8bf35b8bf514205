"""`attncc tune` on a GPU: equals never win, a second run changes nothing, every pass is timed and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attncc.compiler import load_specification
from attncc.diagnostics import AttnccError
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime.call.repeated import PAIRED, Attribute
from attncc.runtime.cuda.device import best_target
from attncc.runtime.cuda.driver import driver
from attncc.runtime.store.crossings import chip_of
from attncc.schedule.plan import Build
from attncc.schedule.target import TARGETS
from attncc.tune.candidates import TunedKernel, first_plan, schedules, settings_of
from attncc.tune.gpu import Gpu
from attncc.tune.race import HELD, TWIN, Board, Timer, confirm, halve
from attncc.tune.work import Oracle, Work
from tests.test_cli import run

pytestmark = pytest.mark.gpu

pytest.importorskip("cupy")

CAUSAL = "attn 1\n\nvariant mine {\n    keep if q_pos >= kv_idx\n}\n"
SIZES = ("--q-len", 1024, "--heads", 8, "--batch", 2, "--head-dim", 64)
TRIES = 20
BUDGET = "12s"  # the compilations share the cores with other tests


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "mine.attn"
    found.write_text(CAUSAL)
    return found


def target() -> str:
    found = best_target(TARGETS, driver().device(0).capability)
    assert found is not None
    return found


def tuned(pass_name: str, dtype: str = "bf16", spec: str = "causal", dim: int = 64) -> TunedKernel:
    specification, _ = load_specification(folder("specs") / f"{spec}.attn", None, {})
    return TunedKernel(specification, Build(pass_name, target(), dtype, dim, dim))


def work_of(kernel: TunedKernel, problem: Problem) -> Work:
    return Work(kernel.variant, problem, kernel.build.dtype, kernel.build.pass_name, {})


def test_a_schedule_never_beats_itself() -> None:
    """TRIES tries, each a race of three kernels of the same schedule, loaded apart, and a duel. Windows are short, so
    that the noise is larger than a user's."""
    kernel = tuned("forward")
    gpu = Gpu(work_of(kernel, Problem(2, 16, 16, 2048, 2048, 64, 64)), kernel)
    verdicts = []
    for number in range(TRIES):
        names = (HELD, TWIN, "a", "b", "c")
        launches = {name: gpu.launch(kernel.with_schedule(None)) for name in names}
        timer = Timer(gpu, launches, gpu.clock() + 60, window_ms=2.0, settle_ms=1.0)
        board = Board()
        timer.warm()
        first, *_ = halve(timer, board, ("a", "b", "c"), number)
        verdicts.append(confirm(timer, board, first))
    print([f"{item.gain:+.2%} floor {item.floor:.2%}" for item in verdicts])
    assert not any(item.wins for item in verdicts)


@pytest.mark.alone
def test_it_finds_what_is_faster_and_a_second_run_changes_nothing(path: Path) -> None:
    path.write_text(CAUSAL + f"\nschedule slow for mine on {target()} {{\n    block_q = 64\n    block_kv = 16\n}}\n")
    first = tune(path)  # by the default budget: a run that is cut short leaves something to find
    assert first["verdict"]["wins"] and first["verdict"]["gain"] > 0.1
    text = path.read_text()
    assert "block_kv = 16" not in text and text.startswith(CAUSAL)
    assert not tune(path, "--dry-run")["verdict"]["wins"]
    assert path.read_text() == text


def tune(path: Path, *more: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("tune", path, *SIZES, *more, "--format", "json").stdout)
    return found


@pytest.mark.parametrize(
    "more",
    [
        ("--pass", "backward"),
        ("--q-len", 1, "--kv-len", 4096),
        ("--pass", "backward_dq", "--dtype", "fp32"),
        ("--cold",),
    ],
    ids=["backward", "decode", "backward_dq", "cold"],
)
def test_other_calls(path: Path, more: tuple[object, ...]) -> None:
    found = tune(path, *more, "--budget", BUDGET, "--dry-run")
    assert found["verdict"] is not None
    timed = [trial for trial in found["trials"] if trial["milliseconds"] is not None]
    assert len(timed) >= 2
    assert all(0.001 < trial["milliseconds"] < 100 for trial in timed)
    assert not any(trial["trouble"].startswith("wrong") for trial in found["trials"])
    assert path.read_text() == CAUSAL


def test_e4m3(path: Path) -> None:
    pytest.importorskip("torch")
    if target() != "sm_90a":
        pytest.skip("e4m3 kernels run on sm_90a alone")
    found = tune(path, "--dtype", "e4m3", "--budget", BUDGET, "--dry-run")
    assert len([trial for trial in found["trials"] if trial["milliseconds"] is not None]) >= 2


@pytest.mark.parametrize(
    ("pass_name", "problem"),
    [
        ("forward", Problem(2, 4, 2, 700, 700, 64, 64)),
        ("decode", Problem(2, 8, 2, 1, 3000, 64, 64)),
        ("backward", Problem(2, 4, 2, 700, 700, 64, 64)),
    ],
)
def test_candidates_agree_with_fp64(pass_name: str, problem: Problem) -> None:
    """The first of each family's tiles: what the check of a winner sees."""
    kernel = tuned(pass_name)
    work = work_of(kernel, problem)
    gpu, small, seen = Gpu(work, kernel), work.smaller(), set[str]()
    oracle = Oracle(small)
    for schedule in schedules(kernel):
        try:
            family = first_plan(kernel, schedule).family
        except AttnccError:  # tiles that can't be
            continue
        if family not in seen:
            seen.add(family)
            found = gpu.results(kernel.with_schedule(schedule), small)
            assert oracle.judge(found) == "", settings_of(schedule)
    assert seen


@pytest.mark.parametrize(
    ("spec", "pass_name", "problem", "together"),
    [
        ("causal", "backward", Problem(1, 4, 4, 4096, 4096, 128, 128), True),
        ("causal", "backward", Problem(1, 4, 4, 1024, 1024, 128, 128), False),
        ("full", "backward", Problem(1, 8, 2, 2048, 2048, 128, 128), True),
        ("full", "forward", Problem(4, 16, 16, 4096, 4096, 128, 128), True),
    ],
)
def test_the_check_runs_in_clusters_where_the_timed_call_does(
    spec: str, pass_name: str, problem: Problem, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target() != "sm_90a":
        pytest.skip("clusters are for sm_90a")
    kernel = tuned(pass_name, spec=spec, dim=128)
    work, plan = work_of(kernel, problem), kernel.candidates(None).first
    small = work.smaller(plan, driver().device(0).multiprocessors)
    launched, start = set[bool](), driver().start

    def noted(config: Any, *others: Any) -> int:
        asked = config._obj
        attributes = (Attribute * asked.attribute_count).from_address(asked.attributes) if asked.attribute_count else ()
        launched.add(bytes(PAIRED) in map(bytes, attributes))
        return start(config, *others)

    monkeypatch.setattr(driver(), "start", noted)
    assert Oracle(small).judge(Gpu(work, kernel).results(kernel.with_schedule(None), small)) == ""
    assert (True in launched) == together


def test_tiles_in_two_dimensions() -> None:
    kernel = tuned("patches", spec="natten")
    work = work_of(kernel, Problem(1, 4, 4, 4096, 4096, 64, 64))
    gpu, small = Gpu(work, kernel), work.smaller(kernel.candidates(None).first)
    assert gpu.window(gpu.launch(kernel.with_schedule(None)), 3) > 0
    assert Oracle(small).judge(gpu.results(kernel.with_schedule(None), small)) == ""


def test_crossing_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are measured within the budget, one by one; what is kept is what other processes read."""
    monkeypatch.setenv("ATTNCC_CACHE", str(tmp_path))
    budget = "240s"  # alone it takes 40; other tests share the GPU
    found = json.loads(run("tune", "--crossings", "--budget", budget, "--format", "json").stdout)
    measured = [name for name, point in found["points"].items() if point["calls"]]
    if target() == "sm_90a":
        forms = "split_keys uneven_split_keys row_block_cost combine_keys wide_keys many_rows short_run"
        assert set(forms.split()) <= set(measured)
    device = driver().device(0)
    assert chip_of(device.name, device.multiprocessors).crossings._asdict() == found["crossings"]
    for name in measured:
        assert all(0.05 < call["ratio"] < 20 for call in found["points"][name]["calls"])
