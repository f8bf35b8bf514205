"""Kernels with one maximum for all rows on an emulated GPU: as exact as running maxima, wherever scores lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncc import reference
from attncc.kernels.registry import facts_of
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.unit.templates.test_emulated_hopper import plan_of
from tests.unit.templates.test_emulated_kernels import check, qkv

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

CAUSAL = "keep if q_pos >= kv_idx"
WORSE = 1.02  # times the mean error of a running maximum
CAP = {"bf16": 50, "fp16": 10}  # the largest round ones that are served


def capped(dtype: str, mask: str = "", row_max: str = "unified", **settings: Any) -> KernelPlan:
    cap = CAP[dtype]
    text = f"attn 1\nvariant capped {{\n{mask}\nscore = {cap} * tanh(score / {cap})\n}}\n"
    plan = plan_of(text, dtype, (104, 64), row_max=row_max, **settings)
    assert (facts_of(plan).normalizer == "unified_max_softmax") == (row_max == "unified")
    return plan


def errors(plan: KernelPlan, call: Call) -> tuple[float, float]:
    """The mean error of out, and the largest of lse."""
    out, lse = forward(plan, call)
    exact, exact_lse = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
    assert exact_lse is not None
    kept = np.isfinite(exact_lse)
    assert (np.isneginf(lse) == ~kept).all() and not out[~kept].any()
    return float(np.abs(out.astype(np.float64) - exact).mean()), float(np.abs(lse - exact_lse)[kept].max(initial=0))


def placed(plan: KernelPlan, where: str) -> Call:
    """Rows whose scores are near 0, spread between the bounds, all at one of them, or at both."""
    q, k, v = qkv(plan, (1, 2, 200), (1, 1, 200))
    if where in ("low", "high", "both"):
        q[...], k[...] = 1, 1
        sign = {"low": -1, "high": 1}.get(where, np.where(np.arange(200) % 7, -1, 1)[:, None])
        k *= (sign * np.linspace(0.9, 1.1, 200)[:, None]).astype(k.dtype)
    scale = {"small": 0.05, "spread": 0.4}.get(where, 30.0)
    return Call(q, k, v, scale=scale)


@pytest.mark.parametrize("mask", ["", CAUSAL])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_as_exact_as_running_maxima(dtype: str, mask: str) -> None:
    """In the worst case, too: all scores of a row at the lower bound, where its probabilities are smallest."""
    one_for_all, running = capped(dtype, mask), capped(dtype, mask, "running")
    for where in ("small", "spread", "low", "high", "both"):
        call = placed(running, where)
        error, error_of_lse = errors(one_for_all, call)
        before, before_of_lse = errors(running, call)
        assert error <= WORSE * before, where
        assert error_of_lse <= 1.1 * before_of_lse + 5e-6, where  # which is that of the polynomial for tanh


def test_values_of_any_usual_size() -> None:
    """2^-32 to 2^32: what P times them leaves of fp32."""
    plan = capped("bf16")
    for size in (2.0**-32, 2.0**32):
        for where in ("low", "high"):
            call = placed(plan, where)
            call = Call(call.q, call.k, call.v * np.float32(size).astype(call.v.dtype), scale=call.scale)
            out, _ = forward(plan, call)
            exact, _ = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
            np.testing.assert_allclose(out.astype(np.float64) / size, exact / size, atol=1e-3, rtol=4e-3)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_single_key_is_the_output(dtype: str) -> None:
    """Bit for bit, in whichever tile of its row it is."""
    cap = CAP[dtype]
    text = f"attn 1\nvariant one {{\nkeep if q_pos * 3 == kv_idx\nscore = {cap} * tanh(score / {cap})\n}}\n"
    plan = plan_of(text, dtype, (104, 64), row_max="unified")
    q, k, v = qkv(plan, (1, 2, 70), (1, 1, 70))
    out, lse = forward(plan, Call(q, k, v, scale=0.5))
    rows = np.arange(0, 70, 3) // 3
    np.testing.assert_array_equal(out[0, 1, rows], v[0, 0, ::3])
    assert np.isneginf(lse[..., 24:]).all() and not out[..., 24:, :].any()


EVERYTHING = f"""attn 1
variant everything {{
    input logit: f32[head]
    input doc: i32[pos]
    keep if doc[q_pos] == doc[kv_idx]
    {CAUSAL}
    score = 20 * sigmoid(score) - 12
    sink logit
    dropout 0.3
}}
"""


@pytest.mark.parametrize("splits", [1, 3])
def test_sinks_of_any_size_dropout_and_parts(splits: int) -> None:
    """Sinks far above and below all scores; rows that keep nothing; parts of a row that the combine kernel merges."""
    plan = plan_of(EVERYTHING, "bf16", (104, 64), row_max="unified", split_kv=splits)
    assert plan.score_bounds is not None
    doc = np.sort(np.random.default_rng(3).integers(0, 5, 200)).astype(np.int32)
    for logit in ((1.0, -2.0), (150.0, -150.0), (-np.inf, 60.0)):
        inputs = {"logit": np.float32(logit), "doc": doc}
        q, k, v = qkv(plan, (1, 2, 210), (1, 1, 200))
        check(plan, Call(q, k, v, seed=5, splits=splits, inputs=inputs))


def test_packed_batches_and_garbage() -> None:
    """Sequences of no keys, of one and of several tiles; NaN behind the last key."""
    text = f"attn 1\nvariant gated {{\n{CAUSAL}\nscore = 40 * sigmoid(score)\n}}\n"
    plan = plan_of(text, "bf16", (104, 64), block_q=128, row_max="unified")
    cu = np.int32([0, 3, 3, 140, 200]), np.int32([0, 3, 90, 227, 227])
    q, k, v = qkv(plan, (2, 200), (1, 260))
    k[:, 227:], v[:, 227:] = np.nan, np.nan
    check(plan, Call(q, k, v, cu=cu))


def test_a_score_that_is_nan_spoils_its_row_alone() -> None:
    plan = capped("bf16")
    q, k, v = qkv(plan, (1, 1, 70), (1, 1, 100))
    q[0, 0, 5] = np.nan
    out, lse = forward(plan, Call(q, k, v))
    spoilt = np.arange(70) == 5
    assert np.isnan(out[0, 0, spoilt]).all() and np.isnan(lse[0, 0, spoilt]).all()
    assert np.isfinite(out[0, 0, ~spoilt].astype(np.float32)).all() and np.isfinite(lse[0, 0, ~spoilt]).all()


@pytest.mark.parametrize("head_dims", [(128, 128), (256, 256)])
def test_head_dims_that_may_gain(head_dims: tuple[int, int]) -> None:
    """With the tiles that compilers choose for scores without a form."""
    text = "attn 1\nvariant clamped {\nscore = clamp(score, -9, 9)\n}\n"
    plan = plan_of(text, "fp16", head_dims, block_q=128, block_kv=64, row_max="unified")
    check(plan, Call(*qkv(plan, (1, 1, 150), (1, 1, 200)), scale=0.3))
