"""The forward kernel for Hopper that splits keys, on an emulated GPU: rows of all heads of a group in one tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc import api, library, reference, synthetic
from attncc.compiler import load_specification
from attncc.kernels.candidates import make_candidates
from attncc.kernels.registry import facts_of
from attncc.problem import Problem
from attncc.resources import folder
from attncc.schedule.plan import SPLIT, Build, KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.unit.templates.test_emulated_kernels import CAUSAL, DOCUMENTS, TOLERANCE, check, qkv

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

NOT_OURS = ("mla", "mla_decode")  # whose heads are wider than Hopper's forward kernels have
FULL = "attn 1\nvariant full {\n}\n"
CLAMPED = "attn 1\nvariant clamped {\n    keep if q_pos >= kv_idx\n    score = max(score, -1)\n}\n"
BY_HEAD = """attn 1
variant by_head {
    input slope: f32[head]
    keep if q_pos >= kv_idx
    score = slope[h] * score
}
"""
SINK = """attn 1
variant with_sink {
    input logit: f32[head]
    keep if q_pos >= kv_idx
    keep if q_pos - kv_idx < 40
    sink logit
}
"""
HEAD_MASK = "attn 1\nvariant by_head {\n    keep if q_pos >= kv_idx + h\n}\n"
DROPPED = "attn 1\nvariant dropped {\n    keep if q_pos >= kv_idx\n    dropout 0.25\n}\n"
RISING = """attn 1
variant rising {
    input slope: f32[head]
    keep if q_pos >= kv_idx
    score = score + slope[h] * (kv_idx - q_pos)
}
"""


def plan_of(text: str, dtype: str = "bf16", head_dims: tuple[int, int] = (64, 64), **changes: Any) -> KernelPlan:
    """With small tiles."""
    build = Build("forward", "sm_90a", dtype, *head_dims, **SPLIT._asdict())
    plan = make_candidates(api.parse(text).variant, build).first
    assert plan.split and plan.split_kv is None and plan.block_q <= 128
    return replace(plan, **{"block_q": 64, "warps": 4, "block_kv": 32, "stages": 2, **changes})


GROUPS = (4, 1, 21), (8, 2, 17), (3, 1, 50), (14, 2, 10), (2, 2, 65), (5, 1, 64)


@pytest.mark.parametrize("text", [FULL, CAUSAL, CLAMPED])
@pytest.mark.parametrize(("heads", "kv_heads", "rows"), GROUPS)
def test_groups(text: str, heads: int, kv_heads: int, rows: int) -> None:
    """That fill a warpgroup's rows, and that leave some without a query; of one; and heads that stand alone."""
    plan = plan_of(text)
    assert facts_of(plan).packs_heads
    check(plan, Call(*qkv(plan, (2, heads, rows), (2, kv_heads, 150)), splits=3))


@pytest.mark.parametrize(
    ("dtype", "dims", "heads", "changes"),
    [
        ("fp16", (128, 128), 8, {"block_q": 128, "warps": 8, "block_kv": 64}),
        ("bf16", (128, 128), 7, {"block_q": 128, "warps": 8, "block_kv": 64}),
        ("bf16", (72, 40), 8, {"block_q": 128, "warps": 8}),
        ("fp16", (64, 160), 8, {"block_kv": 64}),
    ],
)
def test_tiles(dtype: str, dims: tuple[int, int], heads: int, changes: dict[str, int]) -> None:
    """Two warpgroups, whose rows are other queries; outputs that are stored in halves; a negative scale."""
    plan = plan_of(CAUSAL, dtype, dims, **changes)
    check(plan, Call(*qkv(plan, (1, heads, 40), (1, 1, 200)), splits=2, scale=-0.1))


@pytest.mark.parametrize("text", [BY_HEAD, SINK])
def test_what_is_read_by_head(text: str) -> None:
    plan, values = plan_of(text), np.float32([0.5, -1, 2, 0.1])
    assert facts_of(plan).packs_heads
    name = plan.variant.inputs[0].name
    check(plan, Call(*qkv(plan, (2, 4, 30), (2, 1, 150)), splits=2, inputs={name: values}))


@pytest.mark.parametrize("text", [HEAD_MASK, DROPPED, RISING])
def test_heads_that_stand_alone(text: str) -> None:
    """A mask of its own for each head, dropout, maxima that rise by a head's slope."""
    plan = plan_of(text)
    assert not facts_of(plan).packs_heads
    inputs = {item.name: np.float32([0.5, 0.1, 0.2, 1]) for item in plan.variant.inputs}
    check(plan, Call(*qkv(plan, (1, 4, 30), (1, 2, 150)), splits=2, seed=5, inputs=inputs))


def test_packed_batches_and_caches() -> None:
    """Sequences of other lengths, one without rows; of caches as many keys as kv_lens says, and an offset."""
    plan = plan_of(CAUSAL)
    cu = np.int32([0, 3, 3, 40, 60, 61]), np.int32([0, 5, 12, 152, 152, 190])
    for heads in (4, 3, 7):
        check(plan, Call(*qkv(plan, (heads, 61), (1, 190)), cu=cu, splits=3))
    lens = np.int32([1, 150, 0])
    check(plan, Call(*qkv(plan, (3, 4, 20), (3, 1, 160)), kv_lens=lens, splits=4))
    check(plan, Call(*qkv(plan, (1, 8, 20), (1, 2, 160)), q_offset=100, splits=2))


def test_one_split() -> None:
    """Which writes the results themselves."""
    plan = plan_of(CAUSAL)
    check(plan, Call(*qkv(plan, (2, 4, 50), (2, 2, 80))))


def test_documents() -> None:
    plan = plan_of(DOCUMENTS)
    doc = np.sort(np.random.default_rng(4).integers(0, 4, (2, 150)).astype(np.int32))
    check(plan, Call(*qkv(plan, (2, 4, 40), (2, 1, 150)), inputs={"doc": doc}, splits=2))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in library.names() if name not in NOT_OURS])
@pytest.mark.parametrize(("heads", "rows"), [(4, 40), (6, 25)])
def test_every_variant(name: str, heads: int, rows: int) -> None:
    """Of the library, with inputs as users have them, two key heads each."""
    build = Build("forward", "sm_90a", "bf16", 64, 64, **SPLIT._asdict())
    specification, _ = load_specification(folder("specs") / f"{name}.attn", None, {})
    plan = make_candidates(specification.variant, build).first
    plan = replace(plan, block_q=64, warps=4, block_kv=32, stages=2)
    problem = Problem(2, heads, 2, rows, 150, 64, 64)
    inputs = synthetic.inputs(plan.variant, problem, np.random.default_rng(heads))
    call = Call(*qkv(plan, (2, heads, rows), (2, 2, 150)), splits=2, seed=3, inputs=inputs)
    out, lse = forward(plan, call)
    expected, expected_lse = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
    size = max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(out.astype(np.float64) / size, expected / size, atol=TOLERANCE["bf16"], rtol=0)
    if expected_lse is not None:
        np.testing.assert_allclose(lse, expected_lse, atol=1e-4, rtol=1e-6)  # a cap's tanh is an approximation
