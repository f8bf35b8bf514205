"""The bytes that the IO model predicts between the L2 cache and multiprocessors, against what emulated kernels load and
add: exactly, tile by tile. Kernels run whole, so problems are small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attncc import api, reference
from attncc.analysis.cost.roofline import DEVICES
from attncc.compiler import load_specification
from attncc.io_model import IoModel, Predicted
from attncc.kernels.candidates import make_plan
from attncc.problem.facts import KERNEL_DTYPES, numpy_dtype
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import KernelPlan
from attncc.schedule.schedule import Schedule
from tests.emulator import backward, kernel
from tests.emulator.attention import Call, forward, problem_of

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="no host compiler")

Array = NDArray[Any]
FULL = "attn 1\nvariant full {\n}\n"
CAUSAL = "attn 1\nvariant causal {\nkeep if q_pos >= kv_idx\n}\n"
WINDOW = "attn 1\nvariant window {\nkeep if 0 <= q_pos - kv_idx < 40\n}\n"
DOCUMENTS = """attn 1
variant documents {
    input doc: i32[batch, pos] nondecreasing
    keep if doc[b, q_pos] == doc[b, kv_idx]
}
"""
STRIPES = "attn 1\nvariant stripes {\nkeep if q_idx // 64 % 3 == kv_idx // 64 % 3\n}\n"


def plan_of(
    text: str, pass_name: str, target: str, head_dims: tuple[int, int] = (64, 64), **settings: Any
) -> KernelPlan:
    variant = api.parse(text).variant
    chosen = tuple((name, (value,)) for name, value in settings.items())
    schedule = Schedule("s", variant.name, pass_name, target, chosen)
    dims = {"head_dim": head_dims[0], "value_head_dim": head_dims[1]}
    return make_plan(variant, dtype="bf16", target=target, schedule=schedule, pass_name=pass_name, **dims)


def arrays(plan: KernelPlan, heads: tuple[int, int], lengths: tuple[int, int], batch: int = 1) -> tuple[Array, ...]:
    rng, dtype = np.random.default_rng(0), numpy_dtype(KERNEL_DTYPES[plan.dtype])
    (num_heads, kv_heads), (q_len, kv_len) = heads, lengths
    shapes = (
        (batch, num_heads, q_len, plan.head_dim),
        (batch, kv_heads, kv_len, plan.head_dim),
        (batch, kv_heads, kv_len, plan.value_head_dim),
    )
    return tuple(rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes)


def predicted(plan: KernelPlan, call: Call) -> Predicted:
    found = IoModel(problem_of(plan, call), call.inputs, DEVICES["h200"]).predict(plan)
    return found[f"{plan.variant.name}_{plan.pass_name}"]


def held_against(plan: KernelPlan, call: Call) -> None:
    kernel.take_counts()
    forward(plan, call)
    counted, totals = kernel.take_counts(), predicted(plan, call).totals()
    assert (counted.read, counted.arrived) == (totals["l2_reads"], totals["sm_reads"])


# Without a mask, and tested tiles. Of masks with bounds other tests here have one on each target; the rest is slow.
MASKS = [FULL, pytest.param(CAUSAL, marks=pytest.mark.slow), pytest.param(WINDOW, marks=pytest.mark.slow), STRIPES]


@pytest.mark.parametrize("text", MASKS)
def test_portable_forward(text: str) -> None:
    """Ragged tiles, groups of heads, and a split of the keys, which loads Q once more."""
    plan = plan_of(text, "forward", "sm_80", block_q=64, block_kv=32)
    held_against(replace(plan, split_kv=1), Call(*arrays(plan, (4, 2), (100, 150))))
    held_against(replace(plan, split_kv=2), Call(*arrays(plan, (2, 1), (70, 170)), splits=2))


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (FULL, {}),
        (CAUSAL, {"block_q": 128}),  # two warpgroups, which ask for themselves
        pytest.param(WINDOW, {"block_q": 192}, marks=pytest.mark.slow),
        (STRIPES, {"block_q": 128, "skip": "in_kernel"}),
        (STRIPES, {"block_q": 128, "skip": "lists"}),
        pytest.param(CAUSAL, {"skip": "never"}, marks=pytest.mark.slow),
    ],
)
def test_hopper_forward(text: str, settings: dict[str, Any]) -> None:
    plan = plan_of(
        text, "forward", "sm_90a", **{"block_q": 64, "block_kv": 32, "stages": 2, "family": "hopper", **settings}
    )
    held_against(plan, Call(*arrays(plan, (2, 1), (150, 230))))


def test_head_dims_that_are_no_whole_panels() -> None:
    for target, family in (("sm_80", "portable"), ("sm_90a", "hopper")):
        plan = plan_of(CAUSAL, "forward", target, (80, 40), family=family, block_q=64, block_kv=32)
        held_against(plan, Call(*arrays(plan, (2, 2), (90, 110))))


def test_clusters_read_the_l2_cache_once_for_two() -> None:
    plan = plan_of(FULL, "forward", "sm_90a", (128, 128), block_q=64, block_kv=64, stages=2, family="hopper")
    call = Call(*arrays(plan, (1, 1), (128, 1024)), paired=True)
    held_against(plan, call)
    totals = predicted(plan, call).totals()
    assert totals["sm_reads"] > 1.9 * totals["l2_reads"]


def backward_held_against(plan: KernelPlan, call: Call) -> None:
    out, lse = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
    assert lse is not None
    dout = np.random.default_rng(3).standard_normal(out.shape).astype(call.q.dtype)
    results = backward.Results(dout, out.astype(call.q.dtype), lse.astype(np.float32))
    kernel.take_counts()
    backward.backward(plan, None, call, results)
    counted, totals = kernel.take_counts(), predicted(plan, call).totals()
    assert counted.read == totals["l2_reads"]
    assert counted.arrived == totals["sm_reads"]
    assert counted.added == totals["reductions"]


@pytest.mark.parametrize("text", MASKS)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_backward(text: str, target: str) -> None:
    plan = plan_of(text, "backward", target)
    assert plan.family == ("hopper" if target == "sm_90a" else "portable")
    backward_held_against(plan, Call(*arrays(plan, (4, 2), (150, 300))))


@pytest.mark.parametrize("text", [FULL, CAUSAL])
def test_backward_of_clusters(text: str) -> None:
    """Two blocks of keys go over rows together; each makes half of the columns of dQ."""
    plan = plan_of(text, "backward", "sm_90a", (128, 128))
    length = 1024 if text == FULL else 4096
    backward_held_against(plan, Call(*arrays(plan, (1, 1), (length, 256)), paired=True))


def test_documents_whose_bounds_are_searched_for() -> None:
    doc = np.sort(np.random.default_rng(4).integers(0, 5, (2, 300))).astype(np.int32)
    for target, family in (("sm_80", "portable"), ("sm_90a", "hopper")):
        plan = plan_of(DOCUMENTS, "forward", target, family=family, block_q=64, block_kv=32)
        held_against(plan, Call(*arrays(plan, (2, 1), (170, 300), 2), inputs={"doc": doc}))


@pytest.mark.parametrize(("target", "head_dim"), [("sm_80", 64), ("sm_90a", 64), ("sm_90a", 128)])
def test_2d_tiles(target: str, head_dim: int) -> None:
    """Fixed ones, and with head dim 128 windows."""
    specification, _ = load_specification("natten", None, {})
    *_, tiles_2d = specification.candidates(Configuration("bf16", head_dim, head_dim), target)
    plan = tiles_2d.first
    assert plan.grid_2d is not None and plan.grid_2d.window == (head_dim == 128)
    held_against(plan, Call(*arrays(plan, (2, 1), (1024, 1024))))


def test_decode_loads_keys_once_for_a_group() -> None:
    plan = plan_of(CAUSAL, "decode", "sm_80")
    call = Call(*arrays(plan, (8, 2), (1, 700), 2), multiprocessors=4)
    kernel.take_counts()
    forward(plan, call)
    chip = predicted(plan, call).chip
    queries = kernel.take_counts().read - chip.l2_reads["k"] - chip.l2_reads["v"]
    group = 4 * plan.head_dim * plan.element_bytes  # the rows of a head of k, loaded once for each part of its keys
    assert queries % group == 0 and 4 * group <= queries < 0.03 * chip.l2_reads["k"]
