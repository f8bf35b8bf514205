"""Rows whose first tiles hold only very low finite scores, as masks of floats make them, on an emulated GPU.

A bias says which pairs are low, so one kernel serves all cases. The rows of a warp have different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attncc import reference
from attncc.analysis.mask.tiles import analyse
from attncc.kernels.registry import facts_of, forward_facts
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.unit.templates import test_emulated_8bit_caches as bytes_8
from tests.unit.templates import test_emulated_fp8 as fp8
from tests.unit.templates import test_emulated_hopper as hopper
from tests.unit.templates.test_emulated_caches import cache, in_pages
from tests.unit.templates.test_emulated_decode import narrow
from tests.unit.templates.test_emulated_kernels import plan_of, qkv
from tests.unit.templates.test_emulated_wide import wide

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")]

Array = NDArray[Any]
BIASED = """attn 1
variant biased {
    input bias: f32[head, q, pos]
    score = score + bias[h, q_idx, kv_idx]
}
"""
CASES = 8
KEYS = 150  # of a call: tiles have 32 or 64
LOW = (-1e4, -1e9, -1e30)
TOLERANCE = {"bf16": 1e-2, "fp16": 1.5e-3, "fp32": 3e-6, "e4m3": 0.1}  # of outputs of about 1
LEAST = 2e-3  # where scores of a row are low and differ: fp32 rounds them at their own size


def bias_of(case: int, low: float, keys: int) -> Array:
    """What is added to the scores of a row."""
    bias, at = np.zeros(keys, np.float32), np.arange(keys)
    some = max(64, keys // 3)  # a tile and more
    match case:
        case 0:  # low, then normal
            bias[: some + some // 2] = low
        case 1:  # normal, then low
            bias[40:] = low
        case 2:  # all low
            bias[:] = low
        case 3:  # all low, to different degrees
            bias[:] = np.float32(low) + at % 3
        case 4:  # low, less low, normal
            bias[: 2 * some] = low / 10
            bias[:some] = low
        case 5:  # nothing, low, normal in a few keys of the last tile
            bias[:-4] = low
            bias[:some] = -np.inf
        case 6:  # low in each tile, and nothing else in some
            bias[at % 5 > 0] = low
            bias[some : 2 * some] = low
        case 7:  # nothing is low
            pass
    return bias


def biases(shape: tuple[int, int], low: float, keys: int) -> Array:
    heads, rows = shape
    return np.stack([[bias_of((row + 3 * head) % CASES, low, keys) for row in range(rows)] for head in range(heads)])


def expected(call: Call, bias: Array, k: Array, v: Array, *, capped: bool = False) -> tuple[Array, Array]:
    """out and lse, from scores of fp32, which a low bias leaves few digits. `k`, `v`: [batch, kv heads, keys, dims]."""
    batch, heads, _, dim = call.q.shape
    q, k, v = (x.astype(np.float64) for x in (call.q, k, v))
    k, v = (np.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * dim**-0.5
    scores = 20 * np.tanh(scores / 20) if capped else scores
    scores = (scores.astype(np.float32) + bias[..., : k.shape[2]]).astype(np.float64)
    for b in range(batch if call.kv_lens is not None else 0):
        scores[b, ..., call.kv_lens[b] :] = -np.inf
    top = scores.max(-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # rows of -inf alone
        weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    return weights / total @ np.nan_to_num(v), (top + np.log(total))[..., 0]


def judge(plan: KernelPlan, call: Call, k: Array, v: Array, tolerance: float) -> None:
    out, lse = forward(plan, call)
    bias = call.inputs["bias"]
    wanted, wanted_lse = expected(call, bias, k, v)
    heads, rows = bias.shape[:2]
    case = (np.arange(rows) + 3 * np.arange(heads)[:, None]) % CASES
    for number in range(CASES):
        found, exact = out.astype(np.float64)[:, case == number], wanted[:, case == number]
        allowed = max(tolerance, LEAST) if number in (2, 3) else tolerance
        np.testing.assert_allclose(
            found, exact, atol=allowed, rtol=0, err_msg=f"case {number}, {bias[np.isfinite(bias)].min():g}"
        )
    np.testing.assert_allclose(lse, wanted_lse, atol=1e-4, rtol=1e-6)


def check(plan: KernelPlan, shape: tuple[int, ...], low: tuple[float, ...] = LOW, **given: Any) -> None:
    """A call of `shape`: batch, heads, rows, key heads."""
    assert forward_facts(plan).scores_may_be_low
    batch, heads, rows, kv_heads = shape
    q, k, v = qkv(plan, (batch, heads, rows), (batch, kv_heads, KEYS))
    for number in low:
        call = Call(q, k, v, inputs={"bias": biases((heads, rows), number, KEYS)}, **given)
        judge(plan, call, k, v, TOLERANCE[plan.dtype])


SMALL = {"block_q": 64, "block_kv": 32, "warps": 4, "stages": 1}
Make = Callable[[], KernelPlan]
KERNELS: dict[str, tuple[Make, tuple[int, ...], dict[str, Any]]] = {
    "portable": (lambda: plan_of(BIASED, "bf16", (32, 16), **SMALL), (1, 2, 70, 1), {}),
    "two m16 tiles": (lambda: plan_of(BIASED, "fp16", (32, 32), **SMALL | {"warps": 2}), (1, 2, 70, 1), {}),
    "fp32": (lambda: plan_of(BIASED, "fp32", (32, 16), **SMALL), (1, 2, 70, 1), {}),
    "splits": (lambda: plan_of(BIASED, "bf16", (32, 16), **SMALL | {"split_kv": 3}), (1, 2, 70, 1), {"splits": 3}),
    "keys first": (lambda: plan_of(BIASED, "fp32", (32, 16), **SMALL | {"loop": "kv_outer"}), (1, 2, 70, 1), {}),
    "decode": (lambda: narrow(BIASED, "bf16", block_kv=32), (2, 6, 3, 2), {"blocks": 5}),
    "fp32 decode": (lambda: narrow(BIASED, "fp32", block_kv=32), (2, 6, 3, 2), {"blocks": 4}),
    "wide": (lambda: small(wide(BIASED, (264, 264), "decode")), (1, 4, 9, 2), {"blocks": 3}),
    "hopper": (lambda: hopper.plan_of(BIASED, "bf16"), (1, 2, 70, 1), {}),
    "e4m3": (lambda: fp8.plan_of(BIASED, (64, 64)), (1, 2, 70, 1), {}),
    "wide hopper": (lambda: wide(BIASED, (264, 264), target="sm_90a"), (1, 4, 20, 2), {"blocks": 3}),
}


def small(plan: KernelPlan) -> KernelPlan:
    """With tiles of 32 keys, so that there are several."""
    plan = replace(plan, block_kv=32)
    return replace(plan, rules=analyse(plan.variant, plan.block_q, plan.block_kv))


def some(names: Iterable[str], *others: str) -> list[Any]:
    """All of them, of which the others are slow: each is a kernel, which takes a host compiler half a second."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in others)) for name in names]


@pytest.mark.parametrize("name", some(KERNELS, "two m16 tiles", "fp32", "splits", "fp32 decode", "wide", "e4m3"))
def test_kernels(name: str) -> None:
    make, shape, given = KERNELS[name]
    plan = make()
    check(plan, shape, **given)


def fp8_plan(text: str, **settings: Any) -> KernelPlan:
    plan = fp8.plan_of(text, (32, 144), **settings)
    assert facts_of(plan).maximum == "bounded"
    return plan


def test_bounded_maxima() -> None:
    """Of 8 bits and wide values, whose scores Hopper doesn't compute again."""
    check(fp8_plan(BIASED), (1, 2, 70, 1))


SLOPES = """attn 1
variant slopes {
    input slope: f32[head]
    score = score - slope[h] * abs(q_pos - kv_idx)
}
"""
TABLE = """attn 1
variant far_apart {
    input table: f32[head, 81]
    score = score + table[h, clamp(kv_idx - q_pos, -40, 40) + 40]
}
"""
CAPPED = """attn 1
variant capped {
    input slope: f32[head]
    score = 20 * tanh(score / 20) - slope[h] * abs(q_pos - kv_idx)
}
"""
# What is added to scores grows with the distance, or is low from 40 on: a row is far at first, or at last.
LINES: dict[str, tuple[str, Make]] = {
    "slopes": ("slope", lambda: plan_of(SLOPES, "bf16", (32, 32), **SMALL)),
    "slopes, keys first": ("slope", lambda: plan_of(SLOPES, "fp32", (32, 16), **SMALL | {"loop": "kv_outer"})),
    "table": ("table", lambda: plan_of(TABLE, "bf16", (32, 32), **SMALL)),
    "slopes, hopper": ("slope", lambda: hopper.plan_of(SLOPES, "bf16")),
    "table, hopper": ("table", lambda: hopper.plan_of(TABLE, "bf16")),
    "capped, hopper": ("slope", lambda: hopper.plan_of(CAPPED, "bf16")),
    "table, bounded": ("table", lambda: fp8_plan(TABLE)),
    "slopes, wide": ("slope", lambda: small(wide(SLOPES, (264, 264)))),
}


@pytest.mark.parametrize("name", some(LINES, *(name for name in LINES if name not in ("slopes", "table, hopper"))))
def test_forms_of_score_lines(name: str) -> None:
    """Whole tiles compute exponents by forms of their own."""
    which, make = LINES[name]
    plan = make()
    assert forward_facts(plan).scores_may_be_low
    q, k, v = qkv(plan, (1, 2, 100), (1, 2, KEYS))
    distance = np.arange(KEYS) - np.arange(100)[:, None] - (KEYS - 100)
    for low in (1e3, 1e8, 1e29):
        given = {"slope": np.float32([low, low / 1e3]), "table": np.zeros((2, 81), np.float32)}
        given["table"][:, [0, 80]] = -np.float32([[low, low], [0, low]])
        if which == "slope":
            bias = -given["slope"][:, None, None] * abs(distance).astype(np.float32)
        else:
            bias = given["table"][:, np.clip(distance, -40, 40) + 40]
        call = Call(q, k, v, inputs={which: given[which]})
        out, lse = forward(plan, call)
        wanted, wanted_lse = expected(call, bias, k, v, capped="capped" in name)
        np.testing.assert_allclose(
            out.astype(np.float64), wanted, atol=TOLERANCE[plan.dtype], rtol=0, err_msg=f"{low:g}"
        )
        np.testing.assert_allclose(lse, wanted_lse, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize("kv_dtype", [None, *(pytest.param(name, marks=pytest.mark.slow) for name in ("int8", "e4m3"))])
def test_pages(kv_dtype: str | None) -> None:
    """Of 16 bits and of 8, in parts that thread blocks merge."""
    plan = narrow(BIASED, "bf16", block_kv=32) if kv_dtype is None else bytes_8.PLANS["short decode"](BIASED, "bf16")
    plan = replace(plan, paged=True, kv_dtype=kv_dtype)
    rows = cache(plan, 3, lengths=(260, 131))
    arrays = in_pages(rows, 16)
    k, v = rows["k"], rows["v"]
    if kv_dtype is not None:
        arrays = bytes_8.quantized(arrays, kv_dtype)
        k, v = (unquantized(arrays, name, rows[name].shape[2]) for name in "kv")
    for low in LOW:
        call = Call(**arrays | {"inputs": {"bias": biases((2, 3), low, k.shape[2])}}, blocks=5)
        judge(plan, call, k, v, 2 * TOLERANCE["bf16"])


def unquantized(arrays: dict[str, Any], name: str, keys: int) -> Array:
    """Contiguous rows of a pool of 8 bits; zeros behind a sequence's last key."""
    pool = arrays[name].astype(np.float64) * arrays[f"{name}_scale"][..., None, None]
    table = arrays["block_table"]
    rows = pool[table].swapaxes(1, 2)  # [batch, heads, blocks, page, dims]
    rows = rows.reshape(*rows.shape[:2], -1, rows.shape[-1])[:, :, :keys]
    for b, length in enumerate(arrays["kv_lens"]):
        rows[b, :, length:] = 0
    return np.asarray(rows)


@pytest.mark.parametrize("dtype", some(("bf16", "fp32"), "fp32"))
def test_numbers_at_the_end_of_the_range(dtype: str) -> None:
    """Scores times log2(e) leave it, so that kernels of 16 bits take them for -inf: rows of them alone give 0."""
    plan = plan_of(BIASED, dtype, (32, 16), **SMALL)
    q, k, v = qkv(plan, (1, 2, 70), (1, 1, KEYS))
    bias = biases((2, 70), -3e38, KEYS)
    call = Call(q, k, v, inputs={"bias": bias})
    if dtype == "fp32":
        return judge(plan, call, k, v, TOLERANCE[dtype])
    out, lse = forward(plan, call)
    alone = (bias < -2.4e38).all(-1)
    wanted, wanted_lse = expected(call, np.where(bias < -2.4e38, -np.inf, bias), k, v)
    assert not out[:, alone].any() and np.isneginf(lse[:, alone]).all() and alone.any()
    np.testing.assert_allclose(out[:, ~alone].astype(np.float64), wanted[:, ~alone], atol=TOLERANCE[dtype], rtol=0)
    np.testing.assert_allclose(lse[:, ~alone], wanted_lse[:, ~alone], atol=1e-4, rtol=1e-6)
    return None


def test_a_sink_and_dropout() -> None:
    """A sink outweighs low scores, and dropout keeps what it keeps."""
    text = BIASED.replace("    score", "    input logit: f32[head]\n    sink logit\n    dropout 0.25\n    score", 1)
    plan = plan_of(text, "bf16", (32, 16), **SMALL)
    q, k, v = qkv(plan, (1, 2, 70), (1, 1, KEYS))
    for low in LOW:
        given = {"bias": biases((2, 70), low, KEYS), "logit": np.float32([0.5, -3])}
        call = Call(q, k, v, inputs=given, seed=7)
        out, lse = forward(plan, call)
        wanted, wanted_lse = reference.forward(plan.variant, q, k, v, **call.arguments())
        np.testing.assert_allclose(out.astype(np.float64), wanted, atol=TOLERANCE["bf16"], rtol=0, err_msg=f"{low:g}")
        np.testing.assert_allclose(lse, wanted_lse, atol=1e-4, rtol=1e-6)
