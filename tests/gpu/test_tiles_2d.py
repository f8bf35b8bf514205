"""2-D tiles on the GPU: lengths that end within a band of the grid, and those that no grid fits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import attncc
from attncc.kernels.registry import facts_of
from attncc.problem import Problem
from attncc.schedule.plan import KernelPlan
from tests.devices import Device, cuda
from tests.gpu.accuracy import judge

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SPECS = Path(__file__).parents[2] / "specs"
NATTEN = {"canvas_width": 72, "canvas_height": 40, "kernel_width": 7, "kernel_height": 9}
DILATED = {"width": 40, "step": 6}


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda()


@pytest.mark.parametrize("family", ["portable", "hopper"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize(
    ("spec", "defines", "q_len", "kv_len", "in_tiles_2d"),
    [
        ("natten", NATTEN, 72 * 40, 72 * 40, True),
        ("natten", NATTEN, 72 * 11, 72 * 47, True),
        ("natten", NATTEN, 72 * 40 - 5, 72 * 40, False),
        ("dilated_window", DILATED, 6 * 111, 6 * 111, True),
        ("dilated_window", DILATED, 6 * 70, 6 * 31, True),
        ("dilated_window", DILATED, 6 * 70, 6 * 70 + 1, False),
        ("dilated_sliding_window", {}, 1024, 1024, True),
        ("mini_causal", {}, 1024, 1024, True),
    ],
)
def test_tiles_2d(spec, defines, q_len, kv_len, in_tiles_2d, family, layout, device: Device) -> None:  # noqa: PLR0917
    if family == "hopper" and device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    target = "sm_90a" if family == "hopper" else device.target
    kernel = compiled(spec, defines, family, target, 72, 40)
    problem = Problem(2, 4, 2, q_len, kv_len, 72, 40, layout)
    assert serving(kernel, problem, target).pass_name == ("patches" if in_tiles_2d else "forward")
    check(kernel, problem)


@pytest.mark.parametrize(("q_rows", "kv_rows"), [(40, 40), (11, 47), (30, 13)])
@pytest.mark.parametrize("sides", [(7, 9), (13, 13)])
def test_windows(sides, q_rows, kv_rows, device: Device) -> None:
    if device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    defines = NATTEN | {"kernel_width": sides[0], "kernel_height": sides[1]}
    kernel = compiled("natten", defines, "hopper", "sm_90a", 128, 128)
    problem = Problem(2, 4, 2, 72 * q_rows, 72 * kv_rows, 128, 128, "bhsd")
    grid_2d = serving(kernel, problem, "sm_90a").grid_2d
    assert grid_2d is not None and grid_2d.window
    check(kernel, problem)


def serving(kernel: Any, problem: Problem, target: str) -> KernelPlan:
    plans = kernel._store.plans(kernel.configurations[0], target)
    return [plan for plan in plans if facts_of(plan).serves(problem)][-1]


def check(kernel: Any, problem: Problem) -> None:
    from tests.gpu.torch_oracle import Arguments, baseline, oracle

    layout, q_len, kv_len = problem.layout, problem.q_len, problem.kv_len
    generator = torch.Generator("cuda").manual_seed(q_len + kv_len)
    shapes = ((4, q_len, problem.head_dim), (2, kv_len, problem.head_dim), (2, kv_len, problem.value_head_dim))
    q, k, v = (padded(problem.rows_shape(*shape), 1 if layout == "bshd" else 2, generator) for shape in shapes)
    out = torch.full(problem.out_shape, math.nan, dtype=torch.bfloat16, device="cuda")
    _, lse = kernel(q, k, v, layout=layout, out=out, return_lse=True)
    heads_first = [item if layout == "bhsd" else item.transpose(1, 2) for item in (q, k, v, out)]
    arguments = Arguments(kernel.variant, problem, *heads_first[:3], {}, seed=0)
    exact, exact_lse = oracle(arguments)
    accuracy = judge(heads_first[3], baseline(arguments, torch.bfloat16), exact, "bf16")
    assert accuracy.holds, accuracy
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-3)


def compiled(  # noqa: PLR0917
    spec: str, defines: dict[str, int], family: str, target: str, head_dim: int, value_head_dim: int
) -> Any:
    schedules = "".join(
        f"schedule {name} for {spec} {name} on {target} {{ family = {family} }}\n" for name in ("forward", "patches")
    ).replace(f"for {spec} forward on", f"for {spec} on")
    text = (SPECS / f"{spec}.attn").read_text() + schedules
    dims = {"head_dim": head_dim, "value_head_dim": value_head_dim}
    return attncc.compile(text, dtype="bf16", **dims, arch=target, defines=defines)


def padded(shape: tuple[int, ...], axis: int, generator: Any) -> Any:
    """A view of a buffer that holds NaN behind the last row."""
    longer = [size + 300 * (number == axis) for number, size in enumerate(shape)]
    buffer = torch.full(longer, math.nan, dtype=torch.bfloat16, device="cuda")
    view = buffer.narrow(axis, 0, shape[axis])
    view.copy_(torch.randn(shape, generator=generator, device="cuda"))
    return view
