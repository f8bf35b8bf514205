"""`Gpu` without a GPU: NumPy arrays in the place of CuPy's run on the CPU executor, which walks the same plans."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attncc.problem import Problem
from attncc.runtime.cuda.driver import Device
from attncc.tune.candidates import TunedKernel, schedules
from attncc.tune.gpu import Gpu
from attncc.tune.work import Oracle, Work
from tests.unit.tune.specifications import VARIANT, tuned

pytestmark = pytest.mark.slow

TEXTS = {
    "plain": VARIANT,
    "dropout": VARIANT.replace("{\n", "{\n    dropout 0.25\n", 1),
    "inputs": "attn 1\nvariant mine {\n    input slope: f32[head]\n    input cap: f32\n"
    "    score = score * slope[h] + min(cap, 1.0)\n}\n",
    "sigmoid": "attn 1\nvariant mine {\n    normalize sigmoid\n}\n",
}
PASSES = [
    ("forward", "sm_80", "bf16"),
    ("decode", "sm_80", "fp16"),
    ("backward", "sm_80", "bf16"),
    ("backward_dq", "sm_80", "fp32"),
    ("forward", "sm_90a", "e4m3"),
]


class HostArrays:
    def to_gpu(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def to_host(self, array: np.ndarray) -> np.ndarray:
        return array

    def stopwatch(self) -> HostArrays:
        return self

    def window(self, launch: Callable[[], object], repeats: int, before: int = 0) -> float:
        begin = time.perf_counter()
        for _ in range(repeats):
            launch()
        return (time.perf_counter() - begin) * 1e3 / repeats


def gpu(kernel: TunedKernel, work: Work, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Gpu:
    monkeypatch.setattr("attncc.tune.gpu.TorchArrays", HostArrays)
    monkeypatch.setattr("attncc.tune.gpu.CuPyArrays", HostArrays)
    found = Gpu(work, kernel, **options)
    vars(found)["device"] = Device(0, "NVIDIA A100", 80, 108, 1 << 20, 0)
    return found


def work_of(kernel: TunedKernel, problem: Problem) -> Work:
    return Work(kernel.variant, problem, kernel.build.dtype, kernel.build.pass_name, {})


@pytest.mark.parametrize(
    ("text", "pass_name", "target", "dtype"),
    [*(("plain", *item) for item in PASSES), ("inputs", *PASSES[0]), ("dropout", *PASSES[2]),
     *(pytest.param(text, *PASSES[place], marks=pytest.mark.slow)
       for text, place in (("dropout", 0), ("sigmoid", 0), ("inputs", 2)))],
)  # fmt: skip
def test_results_agree_with_the_oracle(
    text: str, pass_name: str, target: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tuned(TEXTS[text], target, pass_name, dtype)
    problem = Problem(3, 4, 2, 1 if pass_name == "decode" else 400, 400, 16, 16)
    work = work_of(kernel, problem)
    machine = gpu(kernel, work, monkeypatch)
    small = work.smaller()
    assert small.problem.num_heads == 2 and small.problem.q_len < 400
    found = machine.results(kernel.with_schedule(kernel.held), small)
    oracle = Oracle(small)
    assert oracle.judge(found) == ""
    first, *others = found
    spoilt = np.where(np.arange(first.shape[-1]) == 3, first + np.asarray(1, first.dtype), first)
    assert oracle.judge([spoilt, *others]).startswith("wrong: ")
    nowhere = np.full_like(first, np.nan)
    assert "isn't finite" in oracle.judge([nowhere, *others])


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
def test_cold_calls_take_other_arrays(pass_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuned(VARIANT, pass_name=pass_name)
    machine = gpu(kernel, work_of(kernel, Problem(1, 2, 2, 64, 64, 16, 16)), monkeypatch, cold=True)
    copies = machine._copies
    assert len(copies) == 16 and len({id(array) for array, *_ in copies}) == 16
    assert machine.window(machine.launch(kernel.with_schedule(None)), 17) > 0
    warm = gpu(kernel, work_of(kernel, Problem(1, 2, 2, 64, 64, 16, 16)), monkeypatch)
    assert len(warm._copies) == 1


def test_another_schedule_is_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuned(VARIANT)
    machine = gpu(kernel, work_of(kernel, Problem(1, 2, 2, 100, 100, 16, 16)), monkeypatch)
    found = [item for item in schedules(kernel) if item.chosen["block_kv"] in (32, 64)][:2]
    plans = [machine._kernel(kernel.with_schedule(item)).report() for item in found]
    tiles = [report["mine_forward_bf16_d16_sm_80"]["choice"]["tiles"] for report in plans]
    assert len(set(tiles)) == 2


def test_what_a_time_means_nothing_without(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuned(VARIANT)
    found = gpu(kernel, work_of(kernel, Problem(1, 2, 2, 64, 64, 16, 16)), monkeypatch).environment()
    assert found["device"] == "NVIDIA A100" and found["nvrtc"][0].isdigit()
