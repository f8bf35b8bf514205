"""The backward kernel for Hopper on an emulated GPU (tests/emulator) against the dense reference in fp64."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from attncc import api, reference
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.plain import plain_on
from attncc.kernels.candidates import Candidates, make_candidates
from attncc.kernels.hopper_backward.facts import HopperBackward
from attncc.kernels.registry import facts_of
from attncc.schedule.plan import Build, KernelPlan
from attncc.schedule.schedule import Schedule
from tests.emulator import kernel
from tests.emulator.attention import Call
from tests.emulator.backward import Results, backward
from tests.unit.templates.test_emulated_backward import FULL, LINEAR, SOFTCAP, check
from tests.unit.templates.test_emulated_kernels import (
    BY_DISTANCE,
    CAUSAL,
    DILATED,
    DOCUMENTS,
    EVERYTHING,
    NEIGHBOURHOOD,
    SIGMOID,
    qkv,
)

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

ADDED = """attn 1
variant added {
    input table: f32[head, 61] learnable
    input far: f32[head, 3] learnable
    input slope: f32[head] learnable
    input keys: f32[batch, kv] learnable
    input rows: f32[head, q] learnable
    input logit: f32[head] learnable
    keep if q_pos >= kv_idx
    score = score + table[h, clamp(kv_idx - q_pos, -60, 0) + 60] - slope[h] * (q_pos - kv_idx)
    score = score + rows[h, q_idx] + keys[b, kv_idx] + far[h, kv_idx // 100]
    sink logit
}
"""
WINDOW = "attn 1\nvariant window {\n    keep if 0 <= q_pos - kv_idx < 100\n}\n"


LEARNED = """attn 1
import masks
variant learned {
    input table: f32[head, 15, 11] learnable
    input slope: f32[head] learnable
    input keys: f32[batch, kv] learnable
    input rows: f32[head, q] learnable
    input logit: f32[head] learnable
    keep if neighborhood(q_pos % 24, kv_idx % 24, 24, 2, 2)
    keep if neighborhood(q_pos // 24, kv_idx // 24, 20, 3, 3)
    score = score + table[h, q_pos // 24 - kv_idx // 24 + 7, clamp(q_pos % 24 - kv_idx % 24, -5, 5) + 5]
    score = score + slope[h] * kv_idx + rows[h, q_idx] + keys[b, kv_idx]
    sink logit
}
"""


def plan_of(text: str, dtype: str, head_dims: tuple[int, int], number: int = 0, **settings: int) -> KernelPlan:
    variant = api.parse(text).variant
    asked = (("family", ("hopper",)), *((name, (value,)) for name, value in settings.items()))
    schedule = Schedule("asked", variant.name, "backward", "sm_90a", asked)
    return list(make_candidates(variant, Build("backward", "sm_90a", dtype, *head_dims), schedule).plans())[number]


@pytest.mark.parametrize(("text", "number"), [(FULL, 0), (CAUSAL, 1)])
def test_plain_attention(text: str, number: int) -> None:
    """Blocks of 256 and of 128 keys, of which the last is ragged, and more than there are thread blocks."""
    plan = plan_of(text, "bf16", (64, 64), number)
    check(plan, None, Call(*qkv(plan, (1, 2, 150), (1, 2, 300))))


@pytest.mark.parametrize(("head_dims", "kv_len"), [((128, 128), 4 * 128 - 30), ((120, 64), 2 * 128 - 90)])
def test_pairs_of_blocks(head_dims: tuple[int, int], kv_len: int) -> None:
    """More than run at once, of heads that share keys; and a block of which one warpgroup has no keys."""
    plan = plan_of(FULL, "bf16", head_dims)
    assert facts_of(plan).uses_clusters
    q, k, v = qkv(plan, (1, 2, 150), (2, 1, kv_len))
    check(plan, None, Call(np.concatenate([q, q[:, ::-1]]), k, v, paired=True))
    check(plan, None, Call(q, k[:1], v[:1]), ordered=True)


@pytest.mark.parametrize(("q_len", "kv_len"), [(450, 4 * 128 - 30), (520, 2 * 128 - 90), (70, 4 * 128)])
def test_pairs_of_blocks_under_a_mask(q_len: int, kv_len: int) -> None:
    """They claim together, and go through the tiles of either, which are none where rows end before."""
    plan = plan_of(CAUSAL.replace("q_pos >= kv_idx", "q_idx >= kv_idx"), "fp16", (128, 64))
    assert facts_of(plan).uses_clusters
    check(plan, None, Call(*qkv(plan, (1, 4, q_len), (1, 2, kv_len)), paired=True))
    check(plan, None, Call(*qkv(plan, (1, 2, q_len), (1, 1, kv_len))), ordered=True)


@pytest.mark.parametrize(
    ("text", "ahead"), [pytest.param(FULL, False, marks=pytest.mark.slow), (CAUSAL, True)], ids=["full", "causal"]
)
def test_calls_without_pairs(text: str, ahead: bool) -> None:
    """In the kernel that they have of their own: two stages of keys. Short, in one order, and packed."""
    plan = replace(plan_of(text, "bf16", (128, 128)), unclustered=True)
    facts = HopperBackward(plan)
    assert (facts.uses_clusters, facts.key_stages, facts.plans_ahead) == (False, 2, ahead)
    call = Call(*qkv(plan, (1, 2, 100), (1, 1, 3 * 128 - 40)))
    for ordered in (False, True):
        check(plan, None, call, ordered=ordered)
    cu = np.int32([0, 3, 3, 150, 170]), np.int32([0, 5, 12, 210, 300])
    check(plan, None, Call(*qkv(plan, (2, 170), (1, 300)), cu=cu))


@pytest.mark.parametrize("head_dims", [(128, 128), (40, 72), (112, 16)])
def test_head_dims(head_dims: tuple[int, int]) -> None:
    plan = plan_of(CAUSAL, "fp16", head_dims)
    check(plan, None, Call(*qkv(plan, (1, 3, 70), (1, 1, 140))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head_dims", "text", "ordered"),
    [((256, 256), FULL, False), ((192, 128), CAUSAL, True), ((72, 256), SIGMOID, False), ((136, 40), WINDOW, False)],
)
def test_keys_that_two_warpgroups_share(head_dims: tuple[int, int], text: str, ordered: bool) -> None:
    """One makes dV of them, the other dK."""
    plan = plan_of(text, "bf16", head_dims)
    assert plan.block_kv == 64
    check(plan, None, Call(*qkv(plan, (1, 2, 150), (1, 1, 140))), ordered=ordered)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "head_dims"), [(DOCUMENTS, (128, 128)), (SOFTCAP, (64, 64)), (SIGMOID, (40, 72))])
def test_shared_keys_where_they_could_be_halved(text: str, head_dims: tuple[int, int]) -> None:
    """A schedule asks for 64 keys."""
    plan = plan_of(text.replace("    dropout 0.3\n", ""), "bf16", head_dims, block_kv=64)
    assert (plan.block_kv, plan.variant.dropout) == (64, None)
    doc = np.sort(np.random.default_rng(1).integers(0, 3, (1, 140)).astype(np.int32))
    known = {"cap": np.array(3.0, np.float32), "doc": doc}
    inputs = {item.name: known[item.name] for item in plan.variant.inputs}
    check(plan, None, Call(*qkv(plan, (1, 2, 140), (1, 1, 140)), inputs=inputs))


@pytest.mark.slow
def test_slopes_that_one_warpgroup_tells_another() -> None:
    """In a packed batch, of score lines whose derivative depends on the score."""
    plan = plan_of(SOFTCAP.replace("    dropout 0.3\n", ""), "fp16", (256, 16))
    assert plan.variant.dropout is None
    cu = np.int32([0, 3, 3, 70, 90, 91]), np.int32([0, 5, 12, 92, 92, 150])
    inputs = {"cap": np.array(3.0, np.float32)}
    check(plan, None, Call(*qkv(plan, (2, 91), (1, 150)), scale=1.0, inputs=inputs, cu=cu))


@pytest.mark.parametrize("number", [0, -1])
def test_everything_at_once(number: int) -> None:
    """A mask, data, a score line, a sink, dropout, groups, a negative scale, a gradient of lse, rows without keys."""
    plan = plan_of(EVERYTHING, "bf16", (64, 64), number)
    rng = np.random.default_rng(1)
    doc = np.sort(rng.integers(0, 4, (2, 100)).astype(np.int32))
    slope, logit = np.float32([0.5, 0.1, 0.3, 0.2]), np.float32([1.0, -2.0, 0.5, 0.0])
    inputs = {"doc": doc, "slope": slope, "logit": logit}
    call = Call(*qkv(plan, (2, 4, 130), (2, 2, 100)), scale=-0.2, seed=2**40 + 3, inputs=inputs)
    found = check(plan, None, call, dlse=True)
    assert not found.dq[:, :, :30].any()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, -1])
def test_slopes_that_depend_on_the_score_with_dropout(number: int) -> None:
    plan = plan_of(SOFTCAP, "bf16", (128, 128), number)
    q, k, v = qkv(plan, (1, 2, 70), (1, 1, 130))
    check(plan, None, Call(q, k, v, scale=1.0, seed=7, inputs={"cap": np.array(3.0, np.float32)}))


@pytest.mark.slow
@pytest.mark.parametrize("line", ["", "    score = 0.25 * score * score\n"])
@pytest.mark.parametrize("text", [SIGMOID, LINEAR])
def test_dropout_without_a_row_sum(text: str, line: str) -> None:
    """dS of what is dropped is 0, though P may be 0 of what is kept."""
    plan = plan_of(text.replace("    normalize", f"{line}    dropout 0.3\n    normalize"), "bf16", (64, 64))
    q, k, v = qkv(plan, (1, 2, 70), (1, 1, 130))
    q[:, :, 5] = 0
    check(plan, None, Call(q, k, v, scale=0.3, seed=7))


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("sorted_ids", [True, False])
def test_documents(head_dim: int, sorted_ids: bool) -> None:
    """Found by search, if their numbers never decrease as declared."""
    plan = plan_of(DOCUMENTS, "bf16", (head_dim, head_dim))
    assert plan.rules.sorted_hints == ("doc",) and not facts_of(plan).uses_tile_kind
    doc = np.random.default_rng(3).integers(0, 5, (2, 333)).astype(np.int32)
    call = Call(*qkv(plan, (2, 2, 200), (2, 1, 333)), inputs={"doc": np.sort(doc) if sorted_ids else doc})
    check(plan, None, call)


def test_documents_in_a_packed_batch() -> None:
    plan = plan_of(DOCUMENTS, "fp16", (32, 16), -1)
    cu = np.int32([0, 3, 3, 70, 90, 91]), np.int32([0, 5, 12, 92, 92, 150])
    doc = np.concatenate([np.arange(end - begin) // 30 for begin, end in pairwise(cu[1])]).astype(np.int32)
    check(plan, None, Call(*qkv(plan, (2, 91), (1, 150)), inputs={"doc": doc}, cu=cu))


@pytest.mark.parametrize("given", [{}, {"q_offset": 20}, {"q_offset": np.int32([3, 90])}], ids=str)
@pytest.mark.parametrize(("text", "number"), [(CAUSAL, 0), (FULL, 1)])
def test_caches(text: str, number: int, given: dict[str, Any]) -> None:
    """Of keys behind the last one gradients are 0, whatever these hold."""
    plan = plan_of(text, "bf16", (64, 64), number)
    q, k, v = qkv(plan, (2, 2, 150), (2, 1, 300))
    k[0, :, 170:] = v[0, :, 170:] = np.nan
    check(plan, None, Call(q, k, v, kv_lens=np.int32([170, 300]), **given))


@pytest.mark.parametrize(("text", "number"), [(CAUSAL, 0), (CAUSAL, -1), (SIGMOID, 0), (LINEAR, -1)])
def test_packed_batches(text: str, number: int) -> None:
    """Sequences without rows, without keys, of one row, and with more rows than keys."""
    plan = plan_of(text, "fp16", (32, 16), number)
    cu = np.int32([0, 3, 3, 70, 90, 91]), np.int32([0, 5, 12, 92, 92, 150])
    check(plan, None, Call(*qkv(plan, (2, 91), (1, 150)), cu=cu))


def fused_gradients(call: Call, results: Results, cap: float | None) -> list[np.ndarray]:
    """dq, dk and dv with the roundings of FlashAttention-2, causal if there is a cap: P and dS are rounded for the
    products that take them, and dS is made of P in fp32. Without batch and heads."""
    q, k, v, dout, out = (x[0, 0].astype(np.float32) for x in (call.q, call.k, call.v, results.dout, results.out))
    dtype, scale = call.q.dtype, np.float32(q.shape[-1] ** -0.5)
    score, factor = q @ k.T * scale, np.float32(1)
    if cap is not None:
        tanh = np.tanh(score / np.float32(cap))
        score, factor = np.where(np.tri(len(q), dtype=bool), cap * tanh, -np.inf), 1 - tanh * tanh
    prob = np.exp(score - results.lse[0, 0][:, None])
    delta = (dout * out).sum(1, keepdims=True)
    dscore = (prob * factor * (dout @ v.T - delta)).astype(dtype).astype(np.float32)
    dv = prob.astype(dtype).astype(np.float32).T @ dout
    return [x.astype(dtype) for x in (dscore @ k * scale, dscore.T @ q * scale, dv)]


@pytest.mark.parametrize(
    ("dtype", "head_dim", "cap", "settings"),
    [
        ("bf16", 128, None, {}),
        ("fp16", 64, None, {"block_kv": 128}),
        ("bf16", 256, None, {}),
        ("bf16", 64, 3.0, {}),  # what dS is a multiple of by is spilled
        ("bf16", 128, 3.0, {}),  # P is spilled
        ("fp16", 136, 3.0, {}),
    ],
)
def test_errors_of_gradients_are_those_of_fused_attention(
    dtype: str, head_dim: int, cap: float | None, settings: dict[str, int]
) -> None:
    """On average: nothing is rounded but what products take with 16 bits."""
    text = FULL if cap is None else SOFTCAP.replace("    dropout 0.3\n", "")
    plan = plan_of(text, dtype, (head_dim, head_dim), **settings)
    inputs = {} if cap is None else {"cap": np.array(cap, np.float32)}
    call = Call(*qkv(plan, (1, 1, 150), (1, 1, 150)), inputs=inputs)
    out, lse = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
    assert lse is not None
    dout = np.random.default_rng(3).standard_normal(out.shape).astype(call.q.dtype)
    results = Results(dout, out.astype(call.q.dtype), lse.astype(np.float32))
    found, exact = (
        backward(plan, None, call, results),
        reference.backward(plan.variant, dout, call.q, call.k, call.v, **call.arguments()),
    )
    for name, fused in zip(("dq", "dk", "dv"), fused_gradients(call, results, cap), strict=True):
        own = np.abs(getattr(found, name).astype(np.float64) - getattr(exact, name)).mean()
        others = np.abs(fused.astype(np.float64) - getattr(exact, name)[0, 0]).mean()
        assert own <= 1.02 * others, (name, own / others)


def in_2d(text: str, dtype: str, head_dims: tuple[int, int], grid_2d: Grid2D, number: int = 0) -> KernelPlan:
    """The same in 2-D tiles, whether they pay or not."""
    variant = plain_on(api.parse(text).variant, grid_2d.width)
    schedule = Schedule("asked", variant.name, "backward_patches", "sm_90a", (("family", ("hopper",)),))
    candidates = Candidates(variant, Build("backward_patches", "sm_90a", dtype, *head_dims), schedule, grid_2d)
    return list(candidates.plans())[number]


@pytest.mark.parametrize(
    ("text", "grid_2d", "lengths", "number", "ordered"),
    [
        (NEIGHBOURHOOD, Grid2D(24, 8, 8), (24 * 20, 24 * 20), 0, False),
        (NEIGHBOURHOOD, Grid2D(24, 8, 8), (24 * 5, 24 * 21), -1, True),
        (NEIGHBOURHOOD.replace("}", "    keep if q_pos >= kv_idx\n}"), Grid2D(24, 8, 8), (24 * 9, 24 * 11), 0, False),
        (BY_DISTANCE, Grid2D(24, 8, 8), (24 * 9, 24 * 11), 0, False),
        (DILATED, Grid2D(6, 1, 1), (6 * 37, 6 * 50), 0, False),
        (DILATED, Grid2D(6, 1, 1), (6 * 90, 6 * 70), -1, True),
    ],
)
def test_tiles_2d(text: str, grid_2d: Grid2D, lengths: tuple[int, int], number: int, ordered: bool) -> None:
    """Bands that the sequences end within, groups of heads, queries before the first key, and keys that nobody sees."""
    plan = in_2d(text, "bf16", (64, 48), grid_2d, number)
    assert plan.tests_tiles
    check(plan, None, Call(*qkv(plan, (1, 2, lengths[0]), (1, 1, lengths[1]))), ordered=ordered)


@pytest.mark.slow
def test_tiles_2d_of_keys_that_two_warpgroups_share() -> None:
    plan = in_2d(NEIGHBOURHOOD, "fp16", (136, 40), Grid2D(24, 8, 4))
    assert plan.block_kv == 64
    check(plan, None, Call(*qkv(plan, (1, 1, 24 * 20), (1, 1, 24 * 20))))


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, -1])
def test_learnable_inputs_in_tiles_2d(number: int) -> None:
    plan = in_2d(LEARNED, "fp16", (32, 32), Grid2D(24, 8, 8), number)
    rng = np.random.default_rng(5)
    shapes = {"table": (2, 15, 11), "slope": (2,), "keys": (1, 480), "rows": (2, 480), "logit": (2,)}
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    inputs["slope"] /= 100
    check(plan, None, Call(*qkv(plan, (1, 2, 480), (1, 2, 480)), inputs=inputs))


def test_rows_of_nobody_and_of_neighbours_may_hold_anything() -> None:
    """What stands in them, NaN included, doesn't reach the gradients of a sequence."""
    plan = plan_of(CAUSAL, "bf16", (64, 64))
    cu = np.int32([0, 40, 75]), np.int32([0, 60, 100])
    q, k, v = qkv(plan, (2, 90), (1, 130))
    out, lse = reference.forward(plan.variant, q, k, v, cu_seqlens_q=cu[0], cu_seqlens_kv=cu[1])
    dout = np.ones_like(q)
    tensors = (q, k, v, dout, out.astype(q.dtype))
    dirty = [array.copy() for array in tensors]
    for array, rows in zip(dirty, (40, 60, 60, 40, 40), strict=True):
        array[:, rows:] = np.nan
    clean, other = (
        backward(plan, None, Call(*given[:3], cu=cu), Results(given[3], given[4], lse.astype(np.float32)))
        for given in (tensors, dirty)
    )
    for name, rows in (("dq", 40), ("dk", 60), ("dv", 60)):
        np.testing.assert_array_equal(*(getattr(found, name)[:, :rows] for found in (clean, other)))


@pytest.mark.parametrize(("number", "ordered"), [(0, False), (1, True)])
def test_learnable_inputs(number: int, ordered: bool) -> None:
    """Tables by distance, of which far tiles read one entry, and by key; factors of a head, a row, a key; a sink."""
    plan = plan_of(ADDED, "fp16", (16, 16), number)
    rng = np.random.default_rng(2)
    shapes = {"table": (4, 61), "far": (4, 3), "slope": (4,), "keys": (2, 270), "rows": (4, 200), "logit": (4,)}
    inputs = {name: np.float32(rng.normal(0, 0.3, shape)) for name, shape in shapes.items()}
    call = Call(*qkv(plan, (2, 4, 200), (2, 2, 270)), inputs=inputs)
    check(plan, None, call, dlse=True, ordered=ordered)


@pytest.mark.slow
def test_learnable_inputs_of_heads_and_rows() -> None:
    """Each consumer has twice 64 keys. Of softmax, what all pairs of a row share would have no gradient."""
    lines = "score = score - slope[h] * (q_pos - kv_idx) + rows[h, q_idx]"
    inputs_read = "    input slope: f32[head] learnable\n    input rows: f32[head, q] learnable\n"
    plan = plan_of(f"attn 1\nvariant sums {{\n{inputs_read}    {lines}\n    normalize sigmoid\n}}\n", "bf16", (16, 16))
    assert plan.block_kv == 256
    rng = np.random.default_rng(2)
    inputs = {"slope": np.float32(rng.normal(0, 0.01, 4)), "rows": np.float32(rng.normal(0, 0.3, (4, 90)))}
    check(plan, None, Call(*qkv(plan, (1, 4, 90), (1, 2, 270)), inputs=inputs))


@pytest.mark.slow
def test_learnable_inputs_of_packed_batches_with_dropout() -> None:
    text = ADDED.replace("    sink", "    dropout 0.2\n    sink").replace(" + keys[b, kv_idx]", "")
    text = text.replace("    input keys: f32[batch, kv] learnable\n", "")
    plan = plan_of(text, "bf16", (16, 16), 1)
    rng = np.random.default_rng(2)
    shapes = {"table": (2, 61), "far": (2, 3), "slope": (2,), "rows": (2, 120), "logit": (2,)}
    inputs = {name: np.float32(rng.normal(0, 0.3, shape)) for name, shape in shapes.items()}
    cu = np.int32([0, 3, 3, 100, 120]), np.int32([0, 5, 12, 140, 150])
    check(plan, None, Call(*qkv(plan, (2, 120), (1, 150)), cu=cu, seed=7, inputs=inputs))


@pytest.mark.parametrize("text", [CAUSAL, WINDOW])
def test_sums_in_one_order(text: str) -> None:
    """Groups, several blocks, of which some have no tiles; blocks that wait for later ones would hang here."""
    plan = plan_of(text, "bf16", (16, 16), 1)
    check(plan, None, Call(*qkv(plan, (2, 2, 200), (2, 1, 420))), ordered=True)
    cu = np.int32([0, 3, 3, 170, 190, 191]), np.int32([0, 5, 12, 292, 292, 350])
    check(plan, None, Call(*qkv(plan, (2, 191), (1, 350)), cu=cu), ordered=True)


@pytest.mark.slow
def test_masks_that_few_tiles_meet() -> None:
    """More tiles of queries than are classified at once, groups, tiles for one consumer alone."""
    plan = plan_of(WINDOW, "bf16", (16, 16), 1)
    check(plan, None, Call(*qkv(plan, (1, 2, 1150), (1, 1, 1200))))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, 1e-5, 50.0])
def test_scales_whose_reciprocal_is_not_a_number_of_fp16(scale: float) -> None:
    plan = plan_of(CAUSAL, "fp16", (32, 32))
    check(plan, None, Call(*qkv(plan, (1, 1, 70), (1, 1, 70)), scale=scale))
