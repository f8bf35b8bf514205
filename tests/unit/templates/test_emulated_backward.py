"""The backward kernels on an emulated GPU (tests/emulator) against the dense reference in fp64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc import api, reference
from attncc.kernels.candidates import make_candidates, make_plan
from attncc.kernels.registry import facts_of
from attncc.problem.gradients import Gradients
from attncc.resources import folder
from attncc.schedule.plan import Build, KernelPlan
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.emulator import kernel
from tests.emulator.attention import Call
from tests.emulator.backward import Results, backward
from tests.unit.templates.test_emulated_kernels import CAUSAL, EVERYTHING, SAME_DOCUMENT, SIGMOID, qkv

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

FULL = "attn 1\nvariant full {\n}\n"
LINEAR = "attn 1\nvariant linear {\n    keep if q_pos >= kv_idx\n    normalize none\n}\n"
SOFTCAP = """attn 1
variant softcap {
    input cap: f32
    keep if q_pos >= kv_idx
    score = cap * tanh(score / cap)
    dropout 0.3
}
"""


LEARNED = """attn 1
variant learned {
    input table: f32[head, 9] learnable
    input slope: f32[head] learnable
    input keys: f32[batch, kv] learnable
    input rows: f32[head, q] learnable
    input cap: f32 learnable
    input logit: f32[head] learnable
    keep if q_pos >= kv_idx
    score = score + table[h, clamp(kv_idx - q_pos, -40, 40) // 10 + 4] - slope[h] * (q_pos - kv_idx)
    score = score * rows[h, q_idx] + keys[b, kv_idx]
    score = cap * tanh(score / cap)
    sink logit
}
"""


def plans_of(
    text: str, dtype: str, head_dims: tuple[int, int], target: str = "sm_90", **tiles: Any
) -> tuple[KernelPlan, KernelPlan]:
    """Of both kernels. `tiles` are those of the first."""
    variant = api.parse(text).variant
    sizes = {"dtype": dtype, "head_dim": head_dims[0], "value_head_dim": head_dims[1], "target": target}
    plan = make_plan(variant, pass_name="backward", **sizes)
    return replace(plan, **tiles), make_plan(variant, pass_name="backward_dq", **sizes)


def check(
    plan: KernelPlan, dq_plan: KernelPlan | None, call: Call, dlse: bool = False, *, ordered: bool = False
) -> Gradients:
    """The accuracy rule, against an unfused implementation. Gradients of inputs may be sums of which little is left:
    there what the unfused implementation errs by is allowed, too."""
    rng = np.random.default_rng(3)
    out, lse = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
    dout = rng.standard_normal(out.shape).astype(call.q.dtype)
    of_lse = rng.standard_normal(out.shape[:-1]).astype(np.float32) if dlse else None
    lse = None if lse is None else lse.astype(np.float32)
    found = backward(plan, dq_plan, call, Results(dout, out.astype(call.q.dtype), lse, of_lse), ordered=ordered)
    given = {"dlse": of_lse, **call.arguments()}
    exact = reference.backward(plan.variant, dout, call.q, call.k, call.v, **given)
    plain = reference.baseline_backward(plan.variant, dout, call.q, call.k, call.v, **given)
    for name in ("dq", "dk", "dv"):
        judged = reference.accuracy(*(getattr(item, name) for item in (found, plain, exact)), plan.dtype)
        assert judged.holds, (name, judged)
    for name, gradient in found.inputs.items():
        size = max(1e-3, np.abs(exact.inputs[name]).max())
        tolerance = {"bf16": 2e-2, "fp16": 3e-3, "fp32": 1e-5}[plan.dtype]
        tolerance = max(tolerance, np.abs(plain.inputs[name] - exact.inputs[name]).max() / size)
        np.testing.assert_allclose(gradient / size, exact.inputs[name] / size, atol=tolerance, rtol=0, err_msg=name)
    return found


@pytest.mark.parametrize(("dtype", "stages", "target"), [("bf16", 2, "sm_90"), ("fp16", 1, "sm_80")])
def test_plain_attention(dtype: str, stages: int, target: str) -> None:
    plan, dq_plan = plans_of(FULL, dtype, (32, 48), target, stages=stages, block_q=32, block_kv=64, warps=4)
    call = Call(*qkv(plan, (1, 2, 70), (1, 1, 90)))
    for of_dq in (dq_plan, None):
        check(plan, of_dq, call)


@pytest.mark.parametrize(
    ("dtype", "tiles"),
    [
        ("bf16", {"stages": 2, "block_q": 32, "block_kv": 64, "warps": 2}),
        ("fp16", {"stages": 3, "block_q": 64, "block_kv": 64, "warps": 4}),
        ("fp32", {"stages": 1, "block_q": 16, "block_kv": 64, "warps": 2}),
        ("bf16", {"stages": 2, "block_q": 32, "block_kv": 64, "warps": 2, "low_register": True}),
    ],
)
def test_everything_at_once(dtype: str, tiles: dict[str, int]) -> None:
    """A mask, data, a score line, a sink, dropout, groups, a negative scale, a gradient of lse, rows without keys."""
    plan, dq_plan = plans_of(EVERYTHING, dtype, (48, 40), **tiles)
    for of_dq in [dq_plan] if dtype == "fp32" else [dq_plan, None]:  # fp32 has no sum of dQ
        check_everything(plan, of_dq)


def check_everything(plan: KernelPlan, dq_plan: KernelPlan | None) -> None:
    rng = np.random.default_rng(1)
    doc = np.sort(rng.integers(0, 4, (2, 70)).astype(np.int32))
    slope, logit = np.float32([0.5, 0.1]), np.float32([1.0, -2.0])
    inputs = {"doc": doc, "slope": slope, "logit": logit}
    call = Call(*qkv(plan, (2, 2, 100), (2, 1, 70)), scale=-0.2, seed=2**40 + 3, inputs=inputs)
    assert not check(plan, dq_plan, call, dlse=True).dq[:, :, :30].any()


@pytest.mark.slow
@pytest.mark.parametrize(("block_kv", "low_register"), [(16, False), (48, False), (16, True)])
def test_dq_of_few_keys_at_a_time(block_kv: int, low_register: bool) -> None:
    """With dropout, whose random words serve 32 keys."""
    plan, dq_plan = plans_of(EVERYTHING, "fp32", (48, 40), stages=1, block_q=16, block_kv=64, warps=2)
    check_everything(plan, replace(dq_plan, block_kv=block_kv, low_register=low_register))


@pytest.mark.parametrize("text", [CAUSAL, SIGMOID, LINEAR])
def test_packed_batches(text: str) -> None:
    """Sequences without rows, without keys, of one row, and with more rows than keys."""
    plan, dq_plan = plans_of(text, "fp16", (32, 16), block_q=16, block_kv=32, warps=1, stages=2)
    cu = np.int32([0, 3, 3, 70, 90, 91]), np.int32([0, 5, 12, 92, 92, 150])
    for of_dq in (dq_plan, None):
        check(plan, of_dq, Call(*qkv(plan, (2, 91), (1, 150)), cu=cu))


@pytest.mark.parametrize("given", [{}, {"q_offset": 20}, {"q_offset": np.int32([3, 90])}], ids=str)
@pytest.mark.parametrize("text", [CAUSAL, SIGMOID, FULL])
def test_caches(text: str, given: dict[str, Any]) -> None:
    """Of keys behind the last one gradients are 0, whatever these hold."""
    plan, dq_plan = plans_of(text, "bf16", (32, 16), block_q=16, block_kv=32, warps=1, stages=2)
    q, k, v = qkv(plan, (2, 2, 50), (2, 1, 120))
    k[0, :, 70:] = v[0, :, 70:] = np.nan
    for of_dq in (dq_plan, None):
        check(plan, of_dq, Call(q, k, v, kv_lens=np.int32([70, 120]), **given))


@pytest.mark.parametrize("scale", [0.0, -0.3])
@pytest.mark.parametrize(("text", "dtype"), [(CAUSAL, "bf16"), (CAUSAL, "fp32"), (SIGMOID, "fp16"), (LINEAR, "bf16")])
def test_scales_that_are_not_positive(text: str, dtype: str, scale: float) -> None:
    """Without score lines the scale is applied last, also to what a masked pair has for a score."""
    plan, dq_plan = plans_of(text, dtype, (32, 32), block_q=32, block_kv=64, warps=4, stages=1)
    call = Call(*qkv(plan, (1, 2, 70), (1, 1, 50)), scale=scale)
    for of_dq in [dq_plan] if dtype == "fp32" else [dq_plan, None]:
        check(plan, of_dq, call)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_slopes_that_depend_on_the_score_with_dropout(dtype: str) -> None:
    plan, dq_plan = plans_of(SOFTCAP, dtype, (16, 16), block_q=32, block_kv=32, warps=2, stages=1)
    q, k, v = qkv(plan, (1, 2, 50), (1, 1, 70))
    cap = np.array(3.0, np.float32)
    check(plan, dq_plan, Call(q, k, v, scale=1.0, seed=7, inputs={"cap": cap}))


@pytest.mark.slow
def test_head_dims_whose_gradients_are_made_by_two_blocks() -> None:
    plan, dq_plan = plans_of(CAUSAL, "bf16", (256, 192), stages=1)
    assert facts_of(plan).gradient_parts == 2
    for of_dq in (dq_plan, None):
        check(plan, of_dq, Call(*qkv(plan, (1, 1, 40), (1, 1, 40))))


def test_a_full_tile_that_reaches_beyond_the_last_row_and_key() -> None:
    """One document: every tile is FULL by its rule."""
    plan, dq_plan = plans_of(SAME_DOCUMENT, "bf16", (16, 16), block_q=32, block_kv=32, warps=1)
    call = Call(*qkv(plan, (1, 1, 70), (1, 1, 70)), inputs={"doc": np.zeros((1, 70), np.int32)})
    for of_dq in (dq_plan, None):
        check(plan, of_dq, call)


@pytest.mark.slow
def test_memory_beyond_the_rows_does_not_matter() -> None:
    """Strided views in a buffer of NaN: whatever lies between rows, or after the last, is not read or not used."""
    plan, dq_plan = plans_of(CAUSAL, "bf16", (72, 72), block_q=32, block_kv=64, warps=4, stages=2)
    views = []
    for part, heads, length in zip(qkv(plan, (1, 2, 50), (1, 1, 70)), (2, 1, 1), (50, 70, 70), strict=True):
        buffer = np.full((1, length + 64, heads, 88), np.nan, np.float32).astype(part.dtype)
        views.append(buffer.transpose(0, 2, 1, 3)[:, :, :length, :72])
        views[-1][:] = part
    for of_dq in (dq_plan, None):
        check(plan, of_dq, Call(*views))


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", [64, pytest.param(128, marks=pytest.mark.slow)])
def test_thrift_where_registers_are_few(head_dim: int) -> None:
    """Four heads share the keys: what one is about takes the place of the one before."""
    program = load(SourceFile.read(folder("specs") / "selected_attention.attn"))
    (variant,) = program.variants
    candidates = make_candidates(variant, Build("backward", "sm_80", "bf16", head_dim, head_dim))
    plan = next(plan for plan in candidates.plans() if plan.low_register)
    assert plan.block_q > 16
    rng = np.random.default_rng(4)
    doc = np.sort(rng.integers(0, 3, (1, 230)).astype(np.int32))
    inputs = {
        "pool_len": np.array(90, np.int32), "selected": rng.integers(-1, 90, (1, 140, 16)).astype(np.int32), "doc": doc,
        "sink_logit": np.float32([1.0, -1.0, 0.5, 2.0]),
    }  # fmt: skip
    sizes = {"dtype": "bf16", "head_dim": head_dim, "value_head_dim": head_dim, "target": "sm_80"}
    for of_dq in (make_plan(variant, pass_name="backward_dq", **sizes), None):
        check(plan, of_dq, Call(*qkv(plan, (1, 4, 140), (1, 1, 230)), inputs=inputs))


@pytest.mark.parametrize(("exact", "low_register"), [(False, False), (True, False), (False, True)])
def test_learnable_inputs(exact: bool, low_register: bool) -> None:
    """A table, most of whose tiles read one entry; a factor of a head, of a row, of a key, of all; a sink."""
    tiles = {"block_q": 32, "block_kv": 32, "warps": 2, "stages": 1}
    plan, dq_plan = plans_of(LEARNED, "fp16", (16, 16), low_register=low_register, **tiles)
    rng = np.random.default_rng(2)
    shapes = {"table": (2, 9), "slope": (2,), "keys": (2, 150), "rows": (2, 150), "cap": (), "logit": (2,)}
    inputs = {name: np.float32(rng.normal(1, 0.3, shape)) for name, shape in shapes.items()}
    inputs["cap"], inputs["slope"] = np.array(4.0, np.float32), np.float32([0.01, 0.02])
    call = Call(*qkv(plan, (2, 2, 150), (2, 1, 150)), scale=0.5, inputs=inputs)
    check(plan, dq_plan if exact else None, call, dlse=True)
