"""`attncc tune` from the command line to the file, on a simulated GPU. All tests but one compile kernels for real."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from attncc.cli import attncc
from attncc.cli.interrupts import Interrupted
from attncc.problem import Problem
from attncc.runtime.cuda.driver import Device
from attncc.schedule.plan import KernelPlan
from attncc.tune.log import name_of
from attncc.tune.session import Session
from attncc.tune.small_call import small_problem
from attncc.tune.work import Oracle, Work
from tests.unit.tune.machines import SimulatedMachine, made, never

BODY = "attn 1\n\nvariant mine {\n    keep if q_pos >= kv_idx\n}\n\n"
BRACES = "schedule fast for mine on sm_80 {\n    block_kv = {64, 96}  # keys\n}\n"
SIZES = ("--q-len", "100", "--head-dim", "16", "--heads", "2", "--batch", "1")


def run(*arguments: object, status: int = 0) -> Result:
    result = CliRunner().invoke(attncc, [str(item) for item in arguments])
    assert result.exit_code == status, result.output
    return result


class Gpu:
    def device(self, _: int) -> Device:
        return Device(0, "NVIDIA A100-SXM4-80GB", 80, 108, 40 << 20, 0)


class Machines:
    """Makes them. `after`: windows until Ctrl-C is pressed."""

    def __init__(self) -> None:
        self.after: int | None = None
        self.made: list[SimulatedMachine] = []
        self.cold: list[bool] = []

    def __call__(self, work: Any, tuned: Any, *, cold: bool) -> SimulatedMachine:
        found = SimulatedMachine(
            tuned, work, lambda plan: 1 / plan.block_kv, wrong=never, after=self.after, seed=len(self.made)
        )
        self.made.append(found)
        self.cold.append(cold)
        return found


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machines:
    """Runs that name no log have one in this test's folder: another process may tune the same kernel."""
    found = Machines()
    monkeypatch.setattr("attncc.runtime.cuda.driver.driver", Gpu)
    monkeypatch.setattr("attncc.cli.tune._machine", found)
    monkeypatch.setattr("attncc.tune.log.name_of", lambda identity: str(tmp_path / name_of(identity)))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "mine.attn"
    found.write_text(BODY + BRACES)
    return found


def test_the_fastest_is_written_and_a_second_run_leaves_it(path: Path, machines: Machines) -> None:
    dry = run("tune", path, *SIZES, "--dry-run").output
    assert "without --dry-run it would get block_kv = 96" in " ".join(dry.split())
    assert path.read_text() == BODY + BRACES
    shown = run("tune", path, *SIZES, "--log", path.with_suffix(".log")).output
    assert "written to" in shown and "noise floor" in shown
    assert max(len(line) for line in shown.splitlines() if str(path) not in line) <= 80
    expected = BODY + BRACES.replace("{64, 96}", "96")
    assert path.read_text() == expected
    assert path.with_suffix(".log").exists()


@pytest.mark.slow
def test_what_is_held_stays_where_nothing_beats_it(path: Path, machines: Machines) -> None:
    path.write_text(BODY + BRACES.replace("{64, 96}", "{96, 64}"))
    before = path.read_text()
    shown = " ".join(run("tune", path, *SIZES).output.split())
    assert "what the file has stays" in shown and "the file is as it was" in shown
    assert path.read_text() == before


def test_json(path: Path, machines: Machines) -> None:
    found = json.loads(run("tune", path, *SIZES, "--dry-run", "--format", "json", "--cold").stdout)
    assert [item["settings"] for item in found["trials"]] == [{"block_kv": 96}, {"block_kv": 64}]
    assert found["verdict"]["wins"] and found["pass"] == "forward"
    assert machines.cold == [True]


def test_ctrl_c_keeps_the_log_and_resume_goes_on(path: Path, machines: Machines) -> None:
    log = path.with_suffix(".log")
    machines.after = 25
    with pytest.raises(Interrupted):
        run("tune", path, *SIZES, "--log", log)
    assert path.read_text() == BODY + BRACES
    blocks = [line for line in log.read_text().splitlines() if '"block"' in line]
    assert blocks
    machines.after = None
    shown = run("tune", path, *SIZES, "--log", log, "--resume").output
    assert blocks[0] in log.read_text()
    assert "block_kv = 96" in path.read_text() and "written to" in shown


def test_what_ctrl_c_wrote_is_not_gone_on_from(
    path: Path, machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log is of what the file had before: a run that went on from it would be refused."""
    machines.after = 60  # enough of the race for an obvious win
    with pytest.raises(Interrupted):
        attncc.main(["tune", str(path), *SIZES], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "written to" in shown and "--resume" not in shown
    assert path.read_text() == BODY + BRACES.replace("{64, 96}", "96")


CHANGES = {
    "mine means something else": lambda text: text.replace(">=", "<"),
    "has another schedule": lambda text: text.replace("{64, 96}", "{64, 96, 32}"),
    "there is no variant": lambda text: text.replace("mine", "yours"),
    "begins nothing here": lambda text: text + "rubbish {\n",
}


@pytest.mark.parametrize("why", CHANGES)
def test_a_file_that_changes_meanwhile_stays(
    path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    _change_meanwhile(path, monkeypatch, CHANGES[why])
    changed = CHANGES[why](path.read_text())
    shown = " ".join(run("tune", path, *SIZES, status=1).output.split())
    assert "error[A528]" in shown and why in shown and "write what was found: block_kv = 96" in shown
    assert path.read_text() == changed


def test_what_else_changes_meanwhile_stays_too(path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    more = "\n# Noted meanwhile.\nvariant two {\n}\n"
    _change_meanwhile(path, monkeypatch, lambda text: "# A comment.\n" + text + more)
    run("tune", path, *SIZES)
    assert path.read_text() == "# A comment.\n" + BODY + BRACES.replace("{64, 96}", "96") + more


def _change_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Nothing is compiled: a file's text is what counts here."""
    monkeypatch.setattr("attncc.tune.session.Session", partial(Session, make=made(never)))
    known = SimulatedMachine.environment

    def environment(self: SimulatedMachine) -> Any:
        if path.read_text() == BODY + BRACES:
            path.write_text(change(path.read_text()))
        return known(self)

    monkeypatch.setattr(SimulatedMachine, "environment", environment)


def test_a_file_that_cannot_be_written_is_told_before_anything_is_timed(
    path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: place != path and allowed(place, mode))
    shown = run("tune", path, *SIZES, status=2).output
    assert "can't be written: Permission denied" in " ".join(shown.split())
    assert not machines.made


def test_a_closed_pipe_costs_the_table_alone(path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: Session) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("attncc.tune.session.Session", partial(Session, make=made(never)))
    monkeypatch.setattr("attncc.cli.tune._print", closed)
    run("tune", path, *SIZES, status=1)
    assert path.read_text() == BODY + BRACES.replace("{64, 96}", "96")


def test_a_link_stays_one(path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncc.tune.session.Session", partial(Session, make=made(never)))
    link = path.with_name("link.attn")
    link.symlink_to(path.name)
    run("tune", link, *SIZES)
    assert link.is_symlink() and path.read_text() == BODY + BRACES.replace("{64, 96}", "96")


def test_the_file_itself_is_no_log(path: Path, machines: Machines) -> None:
    assert "error[A527]" in run("tune", path, *SIZES, "--log", path, status=1).output
    assert path.read_text() == BODY + BRACES


def test_nothing_to_resume(path: Path, machines: Machines) -> None:
    assert "A524" in run("tune", path, *SIZES, "--resume", "--log", path.with_suffix(".log"), status=1).output


def test_a_wrong_result_is_reported(path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedMachine, "results", _wrong)
    shown = run("tune", path, *SIZES, status=1).output
    assert "error[A904]" in shown
    assert path.read_text() == BODY + BRACES


def _wrong(self: SimulatedMachine, specification: Any, small: Work) -> Any:
    (out,), _ = Oracle(small).wanted
    return (out * 2,)


def test_a_schedule_for_wide_heads_names_their_family_and_says_so(
    path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncc.tune.session.Session", partial(Session, make=made(never)))
    shown = run("tune", path, "--q-len", 100, "--head-dim", 320, "--heads", 2, "--batch", 1, "--budget", "9s").output
    assert "family has head dims above 256 alone" in " ".join(shown.split())
    assert "    family   = wide\n" in path.read_text()


@pytest.mark.parametrize(("schedule", "held"), [("", "hopper "), ("{ split_kv = auto }", "portable ")])
def test_what_is_held_is_the_kernel_that_runs(
    path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch, schedule: str, held: str
) -> None:
    """Decode calls of many rows have one of their own, unless a schedule sets something."""

    class Hopper(Gpu):
        def device(self, _: int) -> Device:
            return Device(0, "NVIDIA H200", 90, 132, 50 << 20, 0)

    monkeypatch.setattr("attncc.runtime.cuda.driver.driver", Hopper)
    monkeypatch.setattr("attncc.tune.session.Session", partial(Session, make=made(never)))
    path.write_text(BODY + (schedule and f"schedule s for mine decode on sm_90a {schedule}\n"))
    sizes = ("--q-len", 8, "--kv-len", 3000, "--heads", 8, "--kv-heads", 1, "--batch", 1, "--head-dim", 64)
    shown = run("tune", path, *sizes, "--dry-run", "--budget", "5s", "--format", "json").output
    (now,) = (trial for trial in json.loads(shown)["trials"] if trial["held"])
    assert now["tiles"].startswith(held)


@pytest.mark.usefixtures("machines")
@pytest.mark.parametrize("schedule", ["", "{ block_q = {64, 128} }"])
@pytest.mark.parametrize(("rows", "unclustered"), [(512, True), (4096, False)])
def test_backward_calls_without_clusters_name_the_kernel_that_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str, rows: int, unclustered: bool
) -> None:
    """In the file's row, and in those of candidates; the smaller call is chosen by the usual plan."""

    class Hopper(Gpu):
        def device(self, _: int) -> Device:
            return Device(0, "NVIDIA H200", 90, 132, 50 << 20, 0)

    asked: list[bool] = []

    def small(problem: Problem, plan: KernelPlan, resident: int, *, ordered: bool) -> Problem:
        asked.append(plan.unclustered)
        return small_problem(problem, None, resident, ordered=ordered)

    monkeypatch.setattr("attncc.runtime.cuda.driver.driver", Hopper)
    monkeypatch.setattr("attncc.tune.session.Session", partial(Session, make=made(never)))
    monkeypatch.setattr("attncc.tune.work.small_problem", small)
    path.write_text(BODY + (schedule and f"schedule s for mine backward on sm_90a {schedule}\n"))
    sizes = ("--q-len", rows, "--heads", 2, "--kv-heads", 2, "--batch", 1, "--head-dim", 128)
    shown = run("tune", path, "--pass", "backward", *sizes, "--dry-run", "--budget", "5s", "--format", "json").output
    named = [trial["tiles"] for trial in json.loads(shown)["trials"] if trial["tiles"].startswith("hopper 64 x 128")]
    assert named and all(("without clusters" in tiles) == unclustered for tiles in named)
    assert not any(asked)


@pytest.mark.parametrize("given", ["0s", "a minute", "-5", "60 s", "1e3", "9" * 400, "٣s"])
def test_a_budget_is_a_time(path: Path, machines: Machines, given: str) -> None:
    assert "write a time as in 60s, or 2m" in run("tune", path, f"--budget={given}", status=2).output


def test_a_range_of_lengths(path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets a schedule of its own, made of tiles; what the file has for all lengths is the one to beat, and stays.

    Without braces the tuner tries some sixty kernels: none is compiled here."""
    monkeypatch.setattr("attncc.tune.session.Session", partial(Session, make=made(never)))
    run("tune", path, *SIZES, "--lengths", "64..128")
    own = "schedule fast for mine on sm_80 for lengths 64..128 {\n"
    assert path.read_text().startswith(BODY + BRACES + "\n" + own)
    assert "96" not in path.read_text().partition(own)[0].replace("{64, 96}", "")
    before = path.read_text()
    run("tune", path, *SIZES)  # the call's keys are in that range: it is what is tuned
    assert path.read_text().partition(own)[0] == before.partition(own)[0]
    shown = " ".join(run("tune", path, *SIZES, "--lengths", "100..200", status=2).output.split())
    assert "overlaps 64..128, of the schedule fast" in shown


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--lengths", "8192..1024"), "write a range as in 1024..8192"),
        (("--lengths", "many"), "write a range as in 1024..8192"),
        (("--lengths", "200.."), "leaves out the 100 keys of the call"),
        (("--lengths", "1..", "--pass", "backward_dq"), "the pass backward_dq, which runs the call, has no ranges"),
    ],
)
def test_ranges_that_cant_be(path: Path, machines: Machines, arguments: tuple[str, ...], text: str) -> None:
    assert text in " ".join(run("tune", path, *SIZES, *arguments, status=2).output.split())


@pytest.mark.slow
def test_backward(path: Path, machines: Machines) -> None:
    path.write_text(
        BODY + "schedule back for mine backward on sm_80 {\n    block_q = 32\n    block_kv = {64, 128}\n}\n"
    )
    found = json.loads(run("tune", path, *SIZES, "--pass", "backward", "--format", "json").stdout)
    assert found["pass"] == "backward" and found["verdict"]["wins"]
    assert "    block_kv = 128\n" in path.read_text()


def test_tiles_that_other_head_dims_cannot_have(
    path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a narrow head are written, and the command says what `attncc check` will."""
    monkeypatch.setattr("attncc.tune.session.Session", partial(Session, make=made(never)))
    path.write_text(BODY + BRACES.replace("{64, 96}", "{64, 128}").replace("  # keys", "  stages = 4"))
    narrow = run("tune", path, *SIZES)
    assert "    block_kv = 128  stages = 4\n" in path.read_text()
    assert "with other head dims it can't be" in narrow.stderr and "shared memory" in narrow.stderr


@pytest.mark.slow
def test_e4m3(path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls bring descales, which the file's variant hasn't."""
    monkeypatch.setattr(Gpu, "device", lambda *_: Device(0, "NVIDIA H200", 90, 132, 50 << 20, 0))
    path.write_text(BODY + "schedule fast for mine on sm_90a {\n    block_kv = {32, 64}\n}\n")
    found = json.loads(run("tune", path, *SIZES, "--dtype", "e4m3", "--format", "json").stdout)
    assert found["verdict"]["wins"] and found["device"] == "NVIDIA H200"
    assert "    block_kv = 64\n" in path.read_text()


def test_a_dtype_that_the_gpu_has_no_kernels_of(path: Path, machines: Machines) -> None:
    shown = run("tune", path, *SIZES, "--dtype", "e4m3", status=2).output
    assert "has no kernels of e4m3: they run on sm_90a" in " ".join(shown.split())


def test_e4m3_needs_torch_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from attncc.diagnostics import AttnccError
    from attncc.tune.gpu import TorchArrays

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(AttnccError, match=r"(?s)A525.*torch isn't installed"):
        TorchArrays()
