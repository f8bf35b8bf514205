"""`attncc explain --measure` from the command line to the table: with a stand-in for Nsight Compute, and without a GPU.
Kernels are compiled for real."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from attncc.cli import attncc
from attncc.compiler import load_specification
from attncc.diagnostics import AttnccError
from attncc.measure import ncu
from attncc.measure.compare import Reasons, Row, rows
from attncc.measure.counters import OPTIONAL, QUANTITIES, asked
from attncc.measure.job import Job, main, write
from attncc.measure.ncu import Launch
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime.cuda.driver import Device
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import KernelPlan
from attncc.tune.work import Work
from tests.unit.tune.specifications import VARIANT, tuned

pytestmark = pytest.mark.slow

FAKE = Path(__file__).parent / "fake_ncu.py"
SIZES = ("--q-len", "256", "--head-dim", "64", "--heads", "2", "--batch", "1")


class Gpu:
    def device(self, _: int) -> Device:
        return Device(0, "NVIDIA A100-SXM4-80GB", 80, 108, 40 << 20, 0)


@pytest.fixture
def executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("attncc.runtime.cuda.driver.driver", Gpu)
    monkeypatch.setenv("FAKE_NCU", "counts")
    monkeypatch.setenv("FAKE_KERNELS", "causal_forward")
    path = tmp_path / "ncu"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    path.chmod(0o755)
    return path


def explain(*arguments: object, status: int = 0) -> Result:
    given = ["explain", "causal", *SIZES, "--measure", *map(str, arguments)]
    result = CliRunner().invoke(attncc, given)
    assert result.exit_code == status, result.output
    return result


def test_predicted_beside_measured(executable: Path) -> None:
    told = json.loads(explain("--ncu", executable, "--format", "json").stdout)
    found = {row["name"]: row for row in told["rows"]}
    assert list(found) == ["hbm_reads", "hbm_writes", "l2_reads", "sm_reads", "sm_writes", "reductions", "local"]
    assert (told["plan"]["pass"], told["plan"]["target"], told["device"]) == ("forward", "sm_80", Gpu().device(0).name)
    rows_bytes = 2 * 256 * 64 * 2
    assert found["hbm_reads"]["predicted"] == 3 * rows_bytes
    assert found["hbm_writes"]["predicted"] == found["sm_writes"]["predicted"] == rows_bytes  # the call asks for no lse
    # 1,000,000 of each counter: bytes, or sectors of 32 bytes, of local memory twice.
    assert found["hbm_reads"]["measured"] == 1_000_000
    assert found["sm_reads"]["measured"] == 1_000_000
    assert found["l2_reads"]["measured"] == found["reductions"]["measured"] == 32_000_000
    assert found["local"] == {
        "kernel": "causal_forward", "name": "local", "predicted": 0, "measured": 64_000_000, "ratio": None
    }  # fmt: skip
    assert found["hbm_reads"]["ratio"] == pytest.approx(1e6 / (3 * rows_bytes))
    assert any("spilled" in line for line in told["reasons"])


def test_text(executable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_KERNELS", "min_max_table,causal_forward")
    shown = explain("--ncu", executable).stdout
    assert "causal, bf16, forward: batch 1, 2 heads over 2 key heads, q_len 256" in shown
    assert [line for line in shown.splitlines() if "read from L2" in line and " - " in line]
    assert "Kernels that prepare inputs" in shown


def test_backward(executable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_KERNELS", "delta,causal_backward,dq_sum")
    told = json.loads(explain("--ncu", executable, "--pass", "backward", "--format", "json").stdout)
    found = {(row["kernel"], row["name"]): row["predicted"] for row in told["rows"]}
    arrays, sums = 2 * 256 * 64 * 2, 2 * 256 * 64 * 4
    assert found["causal_backward", "reductions"] > sums
    assert found["delta", "hbm_writes"] == 2 * 256 * 8 + sums
    assert (found["dq_sum", "hbm_reads"], found["dq_sum", "hbm_writes"]) == (sums, arrays)


@pytest.mark.parametrize(
    ("mode", "code", "text"),
    [
        ("forbidden", "A541", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("older", "A542", "it has no counter dram__bytes_read.sum"),
        ("nothing", "A542", "No kernels were profiled"),
        ("crash", "A542", "error[A503]: a kernel can't be launched here"),
        ("gap", "A542", "it has no counter dram__bytes_read.sum, dram__bytes_write.sum"),
        ("nan", "A542", "it has no counter dram__bytes_read.sum, dram__bytes_write.sum"),
        ("oldest", "A542", "it doesn't know the option --print-kernel-base"),
        ("killed", "A542", "it was ended by Segmentation fault"),
        ("rubbish", "A542", "it saw no kernel"),
    ],
)
def test_what_can_go_wrong(executable: Path, monkeypatch: pytest.MonkeyPatch, mode: str, code: str, text: str) -> None:
    monkeypatch.setenv("FAKE_NCU", mode)
    output = explain("--ncu", executable, status=1).output
    assert f"error[{code}]" in output and text in " ".join(output.split())


def test_without_ncu(executable: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(ncu, "_ELSEWHERE", ())
    assert "error[A540]: counters can't be read: Nsight Compute isn't installed" in explain(status=1).output
    assert "absent can't be run: no such program" in explain("--ncu", tmp_path / "absent", status=1).output
    monkeypatch.setattr(ncu, "_ELSEWHERE", (str(tmp_path / "*cu"),))
    assert ncu.find(None) == executable


def test_what_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "ncu"
    path.write_text("no program")
    path.chmod(0o755)
    with pytest.raises(AttnccError, match=r"A540.*can't be run: Exec format error"):
        ncu._run([str(path)])


def test_the_process_that_is_watched_ends_with_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would hold both streams, and the wait would be its own."""
    path = tmp_path / "ncu"
    path.write_text("#!/bin/sh\nsleep 60 &\nsleep 60\n")
    path.chmod(0o755)
    monkeypatch.setattr(ncu, "SECONDS", 0.1)
    begin = time.monotonic()
    assert ncu._run([str(path)]) == ("it took longer than 0.1 s", 1)
    assert time.monotonic() - begin < 30


def test_without_a_gpu(executable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        from attncc.runtime.cuda.driver import _no_gpu

        raise AttnccError(_no_gpu("no NVIDIA driver is installed", ""))

    monkeypatch.setattr("attncc.runtime.cuda.driver.driver", none)
    shown = " ".join(explain("--ncu", executable, status=1).output.split())
    assert "error[A503]" in shown and "explain --measure" in shown


@pytest.mark.parametrize("arguments", [("--device", "h200"), ("--arch", "sm_80"), ("--kv-lens", "5,6")])
def test_options_that_dont_go_together(executable: Path, arguments: tuple[str, ...]) -> None:
    assert f"without {arguments[0]}" in " ".join(explain("--ncu", executable, *arguments, status=2).output.split())


def test_options_of_measuring_alone() -> None:
    result = CliRunner().invoke(attncc, ["explain", "causal", "--pass", "backward"])
    assert result.exit_code == 2 and "--pass and --ncu go with --measure" in result.output


def test_an_older_ncu_is_asked_without_tma(executable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuned(VARIANT)
    job = Job(kernel, Work(kernel.variant, Problem(1, 1, 1, 8, 8, 16, 16), "bf16", "forward", {}))
    assert len(asked(90)) == len(QUANTITIES) + len(OPTIONAL) and asked(80) == QUANTITIES
    assert "tma" in ncu.count(executable, job, 90)[0].bytes
    monkeypatch.setenv("FAKE_NCU", "old")
    assert "tma" not in ncu.count(executable, job, 90)[0].bytes


class Profiler:
    """Of the driver: whether it is on."""

    on = False

    @contextmanager
    def profiled(self, device: object) -> Iterator[None]:
        Profiler.on = True
        yield
        Profiler.on = False


class HostGpu:
    device = None

    def __init__(self, work: Work, kernel: Any) -> None:
        self.calls: list[bool] = []
        HostGpu.made = self

    def launch(self, specification: object) -> Any:
        return lambda: self.calls.append(Profiler.on)


def test_the_process_that_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job survives the way through a file; the second call alone is seen."""
    monkeypatch.setattr("attncc.measure.job.Gpu", HostGpu)
    monkeypatch.setattr("attncc.measure.job.driver", Profiler)
    kernel = tuned(VARIANT)
    doc = np.arange(8, dtype=np.int32)
    job = Job(kernel, Work(kernel.variant, Problem(1, 1, 1, 8, 8, 16, 16), "bf16", "forward", {"doc": doc}))
    write(job, tmp_path / "job")
    assert main(tmp_path / "job") == 0
    assert HostGpu.made.calls == [False, True] and not Profiler.on


def test_reasons() -> None:
    plan = tuned("attn 1\nvariant mine {\n}\n").candidates(None).first
    problem = Problem(1, 1, 1, 4096, 4096, plan.head_dim, plan.value_head_dim)
    found = Reasons(plan, problem, 1000, {"doc": 16384})
    close = [Row("k", "hbm_reads", 100, 101), Row("k", "local", 0, 0)]
    assert list(found.of(close)) == []
    far = [Row("k", "hbm_reads", 100, 150), Row("k", "hbm_writes", 100, 10), Row("k", "local", 0, 64)]
    told = " ".join(found.of(far))
    assert "doc 16,384" in told and "1,000 bytes" in told and "more than once" in told and "spilled" in told


def test_only_kernels_without_a_prediction_are_said_to_have_none() -> None:
    """Of TMA's own counter nothing is predicted, in any kernel."""
    plan = tuned(VARIANT).candidates(None).first
    reasons = Reasons(plan, Problem(1, 1, 1, 64, 64, 16, 16), 60 << 20, {})
    known = [Row("k", "hbm_reads", 100, 100), Row("k", "tma", None, 64)]
    assert not list(reasons.of(known))
    assert "min_max_table" in " ".join(reasons.of([*known, Row("min_max_table", "hbm_reads", None, 64)]))


def test_reasons_of_clusters_and_of_halves_of_the_cache() -> None:
    forward = tuned("attn 1\nvariant mine {\n}\n").candidates(None).first
    specification, _ = load_specification(folder("specs") / "full.attn", None, {})
    keys, *_ = specification.backward_candidates(Configuration("bf16", 128, 128), "sm_90a")
    backward = next(iter(keys.plans()))
    problem = Problem(2, 8, 8, 4096, 4096, 128, 128)
    told = list(Reasons(forward, problem, 4 << 20, {}).of([Row("k", "hbm_reads", 100, 109)]))
    assert len(told) == 1 and "half of the L2 cache" in told[0]
    assert not list(Reasons(forward, problem, 500 << 20, {}).of([Row("k", "hbm_reads", 100, 109)]))
    told = list(Reasons(backward, problem, 60 << 20, {}).of([Row("k", "l2_reads", 1000, 974)]))
    assert len(told) == 1 and "answered by one read" in told[0]


def test_reasons_of_sums_that_pass_by() -> None:
    """O of FlashAttention-1's order, and the sum of dQ, are in fp32 and used again: with Q (and dO) of all heads they
    are more than half of an H200's L2 cache in the calls whose HBM bytes were more than predicted."""
    specification, _ = load_specification(folder("specs") / "full.attn", None, {})
    target, cache = "sm_90a", 60 << 20

    def told(plan: KernelPlan, heads: int, length: int, head_dim: int) -> list[str]:
        problem = Problem(1, heads, heads, length, length, head_dim, head_dim)
        return list(Reasons(plan, problem, cache, {}).of([Row("k", "hbm_reads", 100, 110)]))

    for head_dim, fits in ((64, True), (128, False)):
        plan = replace(specification.plans(Configuration("bf16", head_dim, head_dim), target)[0], loop="kv_outer")
        assert bool(told(plan, 16, 4096, head_dim)) is not fits
    keys, *_ = specification.backward_candidates(Configuration("bf16", 128, 128), target)
    assert "half of the L2 cache" in " ".join(told(keys.first, 8, 4096, 128))
    assert not told(keys.first, 4, 4096, 128)


def test_reasons_of_narrow_rows() -> None:
    specification, _ = load_specification(folder("specs") / "full.attn", None, {})
    plan, *_ = specification.plans(Configuration("bf16", 32, 32), "sm_90a")
    found = Reasons(plan, Problem(1, 1, 1, 4096, 4096, 32, 32), 60 << 20, {}).of([Row("k", "l2_reads", 100, 145)])
    assert "rows of 64 bytes in boxes 128 bytes wide" in " ".join(found)


def test_launches_of_one_kernel_are_added_up() -> None:
    launches = [Launch("a", {"hbm_reads": 1}), Launch("b", {"hbm_reads": 2}), Launch("a", {"hbm_reads": 4})]
    assert [(row.kernel, row.measured) for row in rows({}, launches)] == [("a", 5), ("b", 2)]
