"""What the IO model says of plans: bytes as the executor counts them, waves, and the least that a device needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attncc import executor, synthetic
from attncc.analysis.cost.roofline import DEVICES
from attncc.kernels.registry import backward_facts
from attncc.problem import Problem
from attncc.runtime.cuda.nvrtc import Resources
from attncc.schedule.plan import KernelPlan
from attncc.tune.candidates import TunedKernel, first_plan, schedules
from attncc.tune.model import Model, device_like
from tests.unit.tune.specifications import VARIANT, tuned

PROBLEM = Problem(2, 4, 2, 300, 300, 16, 16)


def plans(kernel: TunedKernel, count: int = 4) -> list[KernelPlan]:
    return [first_plan(kernel, item) for item in schedules(kernel)[:count]]


def model(problem: Problem = PROBLEM, device: str = "h200") -> Model:
    return Model(problem, {}, DEVICES[device])


def arrays(dtype: str) -> tuple[np.ndarray, ...]:
    return synthetic.qkv(PROBLEM, dtype, np.random.default_rng(0))


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_forward_bytes_are_those_that_the_executor_counts(dtype: str) -> None:
    for plan in plans(tuned(VARIANT, dtype=dtype)):
        found = executor.run(plan, *arrays(dtype))
        assert model().predict(plan).bytes_moved == found.traffic.total


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_backward_bytes_are_those_that_the_executor_counts(dtype: str, target: str) -> None:
    """Those of the kernel before the others are the same for all candidates: the model leaves them out."""
    rows = plans(tuned(VARIANT, target, "backward_dq", dtype), 1)[0]
    forward = executor.run(plans(tuned(VARIANT, dtype=dtype), 1)[0], *arrays(dtype))
    for plan in plans(tuned(VARIANT, target, "backward", dtype)):
        ran = executor.run_backward((plan, rows), forward.out, *arrays(dtype), out=forward.out, lse=forward.lse)
        heads = PROBLEM.batch * PROBLEM.num_heads * PROBLEM.q_len
        element = 4 if dtype == "fp32" else 2
        before = heads * (2 * 16 * element + 4 + backward_facts(plan).statistics_bytes)
        own = model().predict(plan).bytes_moved
        own += 0 if backward_facts(plan).adds_dq else model().predict(rows).bytes_moved
        assert own + before == ran.traffic.total


def test_tiles_that_leave_a_wave_half_empty_are_slower() -> None:
    kernel = tuned(VARIANT)
    plan, device = first_plan(kernel, schedules(kernel)[0]), DEVICES["a100"]
    one = Model(replace(PROBLEM, batch=1, num_heads=1, num_kv_heads=1), {}, device).predict(plan)
    assert one.blocks == -(-300 // plan.block_q) and one.idle > 0.9
    assert model(replace(PROBLEM, batch=64, num_heads=64)).predict(plan).idle < 0.1


def test_registers_bound_what_is_resident() -> None:
    kernel = tuned(VARIANT)
    plan = first_plan(kernel, schedules(kernel)[0])
    free, tight = (model().predict(plan, resources) for resources in (None, Resources(255, 0, 0, 0, 0.0)))
    assert tight.resident == 132 * (65536 // (256 * 32 * plan.warps)) < free.resident
    assert tight.warps == tight.resident // 132 * plan.warps


def test_the_roofline_is_the_same_for_all_schedules() -> None:
    found = {round(model().roofline_seconds(plan) * 1e12) for plan in plans(tuned(VARIANT))}
    assert len(found) == 1
    backward = model().roofline_seconds(plans(tuned(VARIANT, pass_name="backward"))[0])
    assert backward > 1.4e-12 * found.pop()


def test_roofline_seconds_of_a_full_mask() -> None:
    text = "attn 1\nvariant mine {}\n"
    problem = Problem(4, 16, 16, 4096, 4096, 128, 128)
    kernel = tuned(text)
    plan = first_plan(kernel, schedules(kernel)[0])
    found = model(problem).roofline_seconds(replace(plan, head_dim=128, value_head_dim=128))
    assert found == pytest.approx(4 * 128 * 4096**2 * 64 / 790e12)


@pytest.mark.parametrize(
    ("name", "capability", "known"),
    [("NVIDIA H100 80GB HBM3", 90, "h100"), ("NVIDIA H200", 90, "h200"), ("NVIDIA GeForce RTX 4090", 89, "rtx4090")],
)
def test_devices_by_name(name: str, capability: int, known: str) -> None:
    assert device_like(name, capability, 77) == (replace(DEVICES[known], multiprocessors=77), True)


def test_an_unknown_device_is_like_one_of_its_capability() -> None:
    device, known = device_like("NVIDIA A40", 86, 84)
    assert (device.capability, device.multiprocessors, known) == (86, 84, False)
