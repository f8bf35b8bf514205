"""Caches of 8 bits on an emulated GPU, by the accuracy rule.

What isn't in use holds NaN; so do the scales of such pages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from attncc import reference
from attncc.kernels.candidates import make_candidates
from attncc.problem.facts import KV_DTYPES
from attncc.reference.accuracy import accuracy
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.unit.templates.test_emulated_caches import FULL, cache, in_pages
from tests.unit.templates.test_emulated_kernels import CAUSAL, SIGMOID, WINDOW, decode_plan, plan_of

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

Array = NDArray[Any]
MOST = {"e4m3": 448.0, "int8": 127.0}
CAPPED = """attn 1
variant capped {
    input doc: i32[batch, pos]
    keep if q_pos >= kv_idx
    keep if doc[b, q_pos] == doc[b, kv_idx]
    score = 2 * tanh(score / 2) + 0.5 * scale
}
"""
LINEAR = "attn 1\nvariant linear_causal {\n    keep if q_pos >= kv_idx\n    normalize none\n}\n"
DROPPED = "attn 1\nvariant dropped {\n    keep if q_pos >= kv_idx\n    dropout 0.2\n}\n"

PLANS: dict[str, Callable[..., KernelPlan]] = {
    "one stage": lambda text, dtype: plan_of(text, dtype, (64, 64), block_q=64, block_kv=32, warps=2, stages=1),
    "staged": lambda text, dtype: plan_of(text, dtype, (48, 144), block_q=64, block_kv=32, warps=4, stages=3),
    "decode": lambda text, dtype: decode_plan(text, dtype, (128, 128)),
    "short decode": lambda text, dtype: replace(decode_plan(text, dtype, (48, 80)), stages=1),
}
EVERY_PLAN = pytest.mark.parametrize("name", PLANS)
EVERY_KIND = pytest.mark.parametrize(("dtype", "kv_dtype"), [(q, kv) for q in ("bf16", "fp16") for kv in KV_DTYPES])


def quantized(arrays: dict[str, Any], kv_dtype: str, *, shrink: float = 1) -> dict[str, Any]:
    """The same call over a cache of 8 bits, whose scales belong to sequences or, of a pool, to pages."""
    made = dict(arrays)
    for name in "kv":
        rows = arrays[name].astype(np.float32) * shrink
        used = np.isfinite(rows).all(-1)  # [batch or pages, heads, rows]
        most = np.where(used[..., None], np.abs(np.where(used[..., None], rows, 0)), 0).max(axis=(2, 3))
        scale = np.where(used.any(-1), np.maximum(most, 1e-20) / MOST[kv_dtype], np.nan).astype(np.float32)
        with np.errstate(invalid="ignore"):
            numbers = rows / scale[..., None, None]
        if kv_dtype == "int8":
            numbers = np.where(used[..., None], np.rint(numbers), 127)
        made[name] = numbers.astype(KV_DTYPES[kv_dtype])
        made[f"{name}_scale"] = np.where(np.isnan(scale), 1, scale) if "block_table" not in arrays else scale
    return made


def check(plan: KernelPlan, call: Call) -> None:
    """The rule, and lse."""
    out, lse = forward(plan, call)
    operands = call.q, call.k, call.v
    oracle, oracle_lse = reference.forward(plan.variant, *operands, **call.arguments())
    baseline, _ = reference.baseline(plan.variant, *operands, **call.arguments())
    found = accuracy(out, baseline, oracle, plan.dtype)
    assert found.holds, str(found)
    if oracle_lse is not None:
        np.testing.assert_allclose(lse, oracle_lse, atol=1e-5, rtol=1e-6)


def narrow(plan: KernelPlan, kv_dtype: str, *, paged: bool = False) -> KernelPlan:
    """The plan over such a cache; of decode kernels with the tiles that a build gives them."""
    if plan.pass_name == "decode" and plan.stages > 1:
        return make_candidates(plan.variant, replace(plan.build, kv_dtype=kv_dtype, paged=paged)).first
    return replace(plan, kv_dtype=kv_dtype, paged=paged)


def rows_of(name: str) -> int:
    return 3 if "decode" in name else 70


@EVERY_KIND
@EVERY_PLAN
def test_lengths(name: str, dtype: str, kv_dtype: str) -> None:
    plan = narrow(PLANS[name](CAUSAL, dtype), kv_dtype)
    check(plan, Call(**quantized(cache(plan, rows_of(name)), kv_dtype)))


@EVERY_KIND
@pytest.mark.parametrize("page", [16, 64])
@EVERY_PLAN
def test_pages(name: str, page: int, dtype: str, kv_dtype: str) -> None:
    plan = narrow(PLANS[name](CAUSAL, dtype), kv_dtype, paged=True)
    check(plan, Call(**quantized(in_pages(cache(plan, rows_of(name)), page), kv_dtype)))


@pytest.mark.parametrize(
    "text", [FULL, WINDOW, CAPPED, SIGMOID, DROPPED], ids=["full", "window", "capped", "sigmoid", "dropped"]
)
@pytest.mark.parametrize("name", ["staged", "decode"])
def test_masks_scores_and_normalizers(name: str, text: str) -> None:
    """A score line reads `scale`, which that of K isn't in. Pages of 13 rows: tiles have several scales."""
    kv_dtype = "int8" if name == "decode" else "e4m3"
    plan = narrow(PLANS[name](text, "bf16"), kv_dtype, paged=True)
    check(plan, Call(**quantized(in_pages(cache(plan, rows_of(name)), 13), kv_dtype), scale=-0.3, seed=3))


@pytest.mark.parametrize("size", [1e-6, 1e4])
@EVERY_KIND
def test_scales_of_any_size(dtype: str, kv_dtype: str, size: float) -> None:
    """P times a small scale would lose its bits in fp16, times a large one leave its range."""
    if dtype == "fp16" and size > 1:
        size = 100.0
    plan = narrow(PLANS["decode"](CAUSAL, dtype), kv_dtype, paged=True)
    call = Call(**quantized(in_pages(cache(plan, 3), 16), kv_dtype, shrink=size), scale=0.1 / size)
    check(plan, call)


@pytest.mark.parametrize("absent", ["k_scale", "v_scale"])
@EVERY_PLAN
def test_scales_that_are_missing_or_the_same_for_all(name: str, absent: str) -> None:
    plan = narrow(PLANS[name](CAUSAL, "bf16"), "e4m3", paged=True)
    arrays = quantized(in_pages(cache(plan, rows_of(name)), 16), "e4m3", shrink=200)
    other = {"k_scale": "v_scale", "v_scale": "k_scale"}[absent]
    arrays |= {absent: None, other: np.float32([[0.01]])}
    check(plan, Call(**arrays, scale=1e-3))


def test_scales_of_sequences_over_pages() -> None:
    plan = narrow(PLANS["decode"](CAUSAL, "bf16"), "int8", paged=True)
    arrays = quantized(in_pages(cache(plan, 3), 16), "int8")
    of_sequences = np.float32([[0.01], [0.02], [0.03], [0.04]])
    check(plan, Call(**arrays | {"k_scale": of_sequences, "v_scale": of_sequences[::-1]}))


@pytest.mark.parametrize("name", ["staged", "decode"])
def test_heads_of_a_group(name: str) -> None:
    """Four query heads for each of two key heads, whose scales differ."""
    plan = narrow(PLANS[name](CAUSAL, "bf16"), "int8")
    rng = np.random.default_rng(4)
    q = rng.standard_normal((2, 8, 5, plan.head_dim)).astype(ml_dtypes.bfloat16)
    k, v = (rng.integers(-127, 128, (2, 2, 150, dim)).astype(np.int8) for dim in (plan.head_dim, plan.value_head_dim))
    k_scale, v_scale = rng.uniform(0.001, 0.02, (2, 2, 2)).astype(np.float32)
    lengths = np.int32([150, 77])
    check(plan, Call(q, k, v, kv_lens=lengths, k_scale=k_scale, v_scale=v_scale))


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_queries_of_any_size(size: float) -> None:
    """They are multiplied in fp16, whose range is smaller than that of bf16."""
    plan = narrow(PLANS["decode"](CAUSAL, "bf16"), "int8")
    arrays = quantized(cache(plan, 3), "int8")
    arrays["q"] = (arrays["q"].astype(np.float32) * size).astype(arrays["q"].dtype)
    check(plan, Call(**arrays, scale=0.1 / size))


def test_a_query_without_a_number_leaves_others_alone() -> None:
    plan = narrow(PLANS["decode"](CAUSAL, "bf16"), "e4m3")
    arrays = quantized(cache(plan, 3), "e4m3")
    expected, _ = forward(plan, Call(**arrays))
    arrays["q"][0, 0, 1, 5], arrays["q"][1, 0, 2, 7] = np.inf, np.nan
    out, _ = forward(plan, Call(**arrays))
    lost = np.zeros(out.shape[:3], bool)
    lost[0, 0, 1] = lost[1, 0, 2] = True
    assert np.isnan(out[lost].astype(np.float32)).all()
    np.testing.assert_array_equal(out[~lost].astype(np.float32), expected[~lost].astype(np.float32))


@pytest.mark.parametrize("first", [1e-20, 1e10])
@EVERY_KIND
def test_scales_that_differ_much(dtype: str, kv_dtype: str, first: float) -> None:
    """Every second page is of another size, and so is the first: P takes scales of any size into fp16's range."""
    plan = narrow(PLANS["decode"](CAUSAL, dtype), kv_dtype, paged=True)
    arrays = quantized(in_pages(cache(plan, 3), 16), kv_dtype)
    firsts = arrays["block_table"][:, ::2]
    arrays["v_scale"][firsts[firsts >= 0]] *= min(first, 1000) if dtype == "fp16" else first
    check(plan, Call(**arrays))


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_probabilities_of_any_size(kv_dtype: str, paged: bool) -> None:
    """P of `normalize none` are scores: here beyond fp16's largest number, but not that of bf16."""
    plan = narrow(PLANS["decode"](LINEAR, "bf16"), kv_dtype, paged=paged)
    arrays = cache(plan, 3)
    given = quantized(in_pages(arrays, 16) if paged else arrays, kv_dtype)
    given["v_scale"] = given["v_scale"] * np.float32(1e-5)
    check(plan, Call(**given, scale=1e4))


def test_small_probabilities_beside_large_ones() -> None:
    """Two heads, whose P are 1e-11 and 1/2: each row has its own range."""
    plan = narrow(PLANS["decode"](SIGMOID, "bf16"), "int8")
    q = np.stack([-np.ones((1, 128)), np.zeros((1, 128))])[None].astype(ml_dtypes.bfloat16)
    k = np.ones((1, 1, 70, 128), np.int8)
    v = np.random.default_rng(7).integers(-127, 128, k.shape).astype(np.int8)
    call = Call(q, k, v, scale=25 / 128)
    out, _ = forward(plan, call)
    expected, _ = reference.forward(plan.variant, q, k, v, **call.arguments())
    error = np.abs(out.astype(np.float64) - expected).max(-1) / np.abs(expected).max(-1)
    assert (error < 4e-3).all(), error


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@EVERY_KIND
def test_every_number_is_widened_exactly(dtype: str, kv_dtype: str, target: str) -> None:
    """One key each: the output is its value. A NaN is one. Targets before sm_89 have no instruction for e4m3."""
    plan = narrow(replace(PLANS["decode"](FULL, dtype), target=target), kv_dtype)
    numbers = np.arange(256, dtype=np.uint8).view(KV_DTYPES[kv_dtype]).reshape(2, 1, 1, 128)
    q = np.zeros((2, 1, 1, 128), np.float32).astype("bfloat16" if dtype == "bf16" else "float16")
    out, _ = forward(plan, Call(q, np.zeros_like(numbers), numbers))
    assert np.array_equal(out.astype(np.float32), numbers.astype(np.float32), equal_nan=True)


@EVERY_KIND
@EVERY_PLAN
@pytest.mark.parametrize("paged", [False, True])
def test_one_key_gives_its_value_rounded_once(name: str, dtype: str, kv_dtype: str, paged: bool) -> None:
    """Its P is 1, which the scale of V leaves alone."""
    plan = narrow(PLANS[name](CAUSAL, dtype), kv_dtype, paged=paged)
    arrays = cache(plan, 1)
    arrays["kv_lens"] = np.ones_like(arrays["kv_lens"])
    given = quantized(in_pages(arrays, 16) if paged else arrays, kv_dtype)
    out, _ = forward(plan, Call(**given))
    exact, _ = reference.forward(plan.variant, *(given[x] for x in "qkv"), **Call(**given).arguments())
    np.testing.assert_array_equal(out.astype(np.float64), exact.astype(out.dtype).astype(np.float64))
