"""Whole kernels on an emulated GPU (tests/emulator): what they compute, and that data is used only once it is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attncc import api, reference
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.tiles import analyse, analyse_tiles_2d
from attncc.codegen.render import render
from attncc.kernels.candidates import make_plan
from attncc.kernels.registry import facts_of
from attncc.problem.facts import KERNEL_DTYPES
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward, prepass_results

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

TOLERANCE = {"bf16": 1e-2, "fp16": 1.5e-3, "fp32": 2e-6}  # of outputs of about 1

EVERYTHING = """attn 1
variant everything {
    input slope: f32[head]
    input doc: i32[batch, pos]
    input logit: f32[head]
    keep if q_pos >= kv_idx
    keep if doc[b, q_pos] == doc[b, kv_idx]
    score = score - slope[h] * (q_pos - kv_idx)
    sink logit
    dropout 0.1
}
"""
CAUSAL = "attn 1\nvariant causal {\n    keep if q_pos >= kv_idx\n}\n"
WINDOW = "attn 1\nvariant window {\n    keep if q_pos >= kv_idx\n    keep if q_pos - kv_idx < 41\n}\n"
SIGMOID = "attn 1\nvariant sigmoid_causal {\n    keep if q_pos >= kv_idx\n    normalize sigmoid\n}\n"
SAME_DOCUMENT = """attn 1
variant same_document {
    input doc: i32[batch, pos]
    keep if doc[b, q_pos] == doc[b, kv_idx]
}
"""
DOCUMENTS = """attn 1
variant documents {
    input doc: i32[batch, pos] nondecreasing
    keep if q_pos >= kv_idx
    keep if doc[b, q_pos] == doc[b, kv_idx]
}
"""
NEIGHBOURHOOD = """attn 1
import masks
variant neighbourhood {
    keep if neighborhood(q_pos % 24, kv_idx % 24, 24, 2, 2)
    keep if neighborhood(q_pos // 24, kv_idx // 24, 20, 3, 3)
}
"""
BY_DISTANCE = """attn 1
variant by_distance {
    keep if abs(q_pos - kv_idx) <= 3 * 24 + 2
    keep if abs(q_pos % 24 - kv_idx % 24) <= 2
}
"""
DILATED = """attn 1
import masks
variant dilated_window {
    keep if window(96)
    keep if dilated(6)
}
"""
ONE_KEY = "attn 1\nvariant one_key {\n    keep if kv_idx == 77\n}\n"

DROPPED = "attn 1\nvariant dropped {\n    keep if q_pos >= kv_idx\n    dropout 0.2\n}\n"
HEADWISE = "attn 1\nvariant headwise {\n    keep if kv_idx <= q_pos - 16 * h\n}\n"

Shape = tuple[int, ...]
Array = NDArray[Any]


def plan_of(text: str, dtype: str, head_dims: tuple[int, int], **changes: Any) -> KernelPlan:
    variant = api.parse(text).variant
    plan = make_plan(variant, dtype=dtype, head_dim=head_dims[0], value_head_dim=head_dims[1], target="sm_90")
    plan = replace(plan, **changes)
    return replace(plan, rules=analyse(variant, plan.block_q, plan.block_kv, searches=plan.loop == "q_outer"))


def decode_plan(text: str, dtype: str, head_dims: tuple[int, int]) -> KernelPlan:
    dims = {"head_dim": head_dims[0], "value_head_dim": head_dims[1]}
    return make_plan(api.parse(text).variant, dtype=dtype, target="sm_90", pass_name="decode", **dims)


def qkv(plan: KernelPlan, q_shape: Shape, kv_shape: Shape) -> tuple[Array, Array, Array]:
    """Normal arrays; the shapes lack the head dim."""
    rng = np.random.default_rng(5)
    shapes = ((*q_shape, plan.head_dim), (*kv_shape, plan.head_dim), (*kv_shape, plan.value_head_dim))
    q, k, v = (rng.standard_normal(shape, np.float32).astype(KERNEL_DTYPES[plan.dtype]) for shape in shapes)
    return q, k, v


def check(plan: KernelPlan, call: Call) -> None:
    """Against the dense reference in fp64."""
    out, lse = forward(plan, call)
    expected, expected_lse = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
    size = max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(out.astype(np.float64) / size, expected / size, atol=TOLERANCE[plan.dtype], rtol=0)
    if expected_lse is not None:
        np.testing.assert_allclose(lse, expected_lse, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        ("bf16", {"block_q": 64, "warps": 2, "stages": 3}),
        ("fp16", {"block_q": 64, "warps": 4, "stages": 1}),
        ("fp32", {}),
        ("bf16", {"loop": "kv_outer", "block_q": 64, "warps": 4, "stages": 1}),
    ],
)
def test_everything_at_once(dtype, changes) -> None:
    plan = plan_of(EVERYTHING, dtype, (80, 40), block_kv=64, **changes)
    rng = np.random.default_rng(1)
    doc = np.sort(rng.integers(0, 4, (2, 150)).astype(np.int32))
    slope, logit = np.float32([0.5, 0.1]), np.float32([1.0, -2.0])
    inputs = {"doc": doc, "slope": slope, "logit": logit}
    check(plan, Call(*qkv(plan, (2, 2, 100), (2, 1, 150)), scale=-0.2, seed=2**40 + 3, inputs=inputs))


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("text", [CAUSAL, DOCUMENTS, WINDOW])
def test_what_a_block_knows_of_itself_is_spilled(text: str, warps: int) -> None:
    """Tiles whose accumulators leave no registers for it; of packed sequences, since those change it most. Warps
    know of their own rows, some of which have none."""
    plan = plan_of(text, "bf16", (32, 128), block_q=32 * warps, block_kv=64, warps=warps, stages=2)
    assert facts_of(plan).spills_to_smem and facts_of(plan).warps_see_less
    cu = np.int32([0, 3, 3, 70, 131]), np.int32([0, 5, 12, 92, 200])
    doc = {"doc": np.sort(np.random.default_rng(1).integers(0, 6, 200).astype(np.int32))} if text == DOCUMENTS else {}
    check(plan, Call(*qkv(plan, (2, 131), (1, 200)), cu=cu, inputs=doc))


def test_warps_that_know_their_rows_to_pass_the_tests() -> None:
    """Of two sequences one has warps with rows of one document and of two; the other's hint is false."""
    plan = plan_of(DOCUMENTS, "bf16", (32, 128), block_q=128, block_kv=64, warps=4, stages=2)
    assert facts_of(plan).searches and "tests_hold(" in render(plan).text
    doc = np.repeat(np.int32([[0, 1, 2], [0, 2, 1]]), [75, 90, 35], axis=1)
    call = Call(*qkv(plan, (2, 1, 200), (2, 1, 200)), inputs={"doc": doc})
    assert prepass_results(plan, call)["doc__sorted"].all(axis=-1).tolist() == [True, False]
    check(plan, call)


def test_packed_batches_split_and_combined() -> None:
    """Sequences without rows, without keys, of one row, and with more rows than keys."""
    plan = plan_of(CAUSAL, "fp16", (32, 32), split_kv=None, block_q=32, block_kv=32, warps=1, stages=2)
    cu = np.int32([0, 3, 3, 70, 90, 91]), np.int32([0, 5, 12, 92, 92, 150])
    check(plan, Call(*qkv(plan, (2, 91), (1, 150)), splits=3, cu=cu))


@pytest.mark.parametrize(("block_q", "warps", "splits"), [(48, 1, 1), (128, 2, 2)])
def test_more_rows_for_a_warp_than_its_quads_have_lanes_for(block_q: int, warps: int, splits: int) -> None:
    """Quads of lanes share 6 and 8 rows: some lanes, or all, have two row sums to store."""
    tiles = {"block_q": block_q, "warps": warps, "block_kv": 32, "stages": 2, "split_kv": None if splits > 1 else 1}
    plan = plan_of(CAUSAL, "bf16", (16, 16), **tiles)
    check(plan, Call(*qkv(plan, (1, 2, 150), (1, 1, 170)), splits=splits))


def test_splits_without_a_normaliser_add_up() -> None:
    plan = plan_of(SIGMOID, "bf16", (16, 24), split_kv=None, block_q=16, block_kv=16, warps=1)
    check(plan, Call(*qkv(plan, (1, 2, 40), (1, 2, 60)), splits=2))


def test_a_full_tile_that_reaches_beyond_the_last_key() -> None:
    """One document: every tile is FULL by its rule, also the last, of which 6 columns are keys."""
    plan = plan_of(SAME_DOCUMENT, "bf16", (16, 16), block_q=32, block_kv=32, warps=1)
    doc = np.zeros((1, 70), np.int32)
    check(plan, Call(*qkv(plan, (1, 1, 70), (1, 1, 70)), inputs={"doc": doc}))


def test_documents_found_by_search() -> None:
    """Of two sequences one is nondecreasing as declared, the other not: its keys must be found all the same."""
    plan = plan_of(DOCUMENTS, "bf16", (16, 16), block_q=32, block_kv=16, warps=1, stages=1)
    assert plan.rules.sorted_hints == ("doc",) and plan.rules.bounds_suffice
    doc = np.random.default_rng(4).integers(0, 9, (2, 300)).astype(np.int32)
    doc[0].sort()
    doc[1, :250].sort()
    call = Call(*qkv(plan, (2, 1, 70), (2, 1, 300)), inputs={"doc": doc})
    assert prepass_results(plan, call)["doc__sorted"].all(axis=-1).tolist() == [True, False]
    check(plan, call)


@pytest.mark.parametrize("hinted", [True, False])
def test_packed_documents_found_by_search(hinted: bool) -> None:
    """Documents are counted anew in each sequence, which is no breach of the hint."""
    plan = plan_of(DOCUMENTS, "fp16", (16, 16), block_q=16, block_kv=16, warps=1, stages=2)
    cu = np.int32([0, 30, 30, 95, 140]), np.int32([0, 64, 64, 164, 200])
    doc = np.concatenate([np.arange(n) // 23 for n in np.diff(cu[1])]).astype(np.int32)
    if not hinted:
        doc[100] = 0
    call = Call(*qkv(plan, (1, 140), (1, 200)), cu=cu, inputs={"doc": doc})
    assert prepass_results(plan, call)["doc__sorted"].all() == hinted
    check(plan, call)


def test_packed_documents_equal_their_sequences() -> None:
    """To the last bit, for each is verified to be in order; else tiles would begin elsewhere."""
    plan = plan_of(DOCUMENTS, "fp16", (32, 32), block_q=16, block_kv=32, warps=1, stages=3)
    cu = np.int32([0, 17, 17, 50, 51]), np.int32([0, 296, 561, 850, 914])
    doc = np.concatenate([np.arange(n) // 101 for n in np.diff(cu[1])]).astype(np.int32)
    q, k, v = qkv(plan, (2, 51), (1, 914))
    packed = forward(plan, Call(q, k, v, cu=cu, inputs={"doc": doc}))
    for rows, keys in zip(map(slice, cu[0], cu[0][1:]), map(slice, cu[1], cu[1][1:]), strict=True):
        arrays = (q[:, rows], k[:, keys], v[:, keys])
        alone = forward(plan, Call(*(x[None] for x in arrays), inputs={"doc": doc[None, keys]}))
        for found, expected in zip(packed, alone, strict=True):
            np.testing.assert_array_equal(found[:, rows], expected[0])


@pytest.mark.parametrize(
    ("text", "grid_2d", "dtype", "q_len", "kv_len"),
    [
        (NEIGHBOURHOOD, Grid2D(24, 8, 8), "bf16", 24 * 20, 24 * 20),
        (NEIGHBOURHOOD, Grid2D(24, 8, 4), "fp32", 24 * 5, 24 * 21),
        (DILATED, Grid2D(6, 1, 1), "fp16", 6 * 37, 6 * 50),
    ],
)
def test_tiles_that_are_tiles_2d(text, grid_2d, dtype, q_len, kv_len) -> None:
    """Bands that the sequences end within, queries before the first key, and what lies behind the last is NaN."""
    plan = plan_of(text, dtype, (40, 24), block_q=64, block_kv=32, warps=2, stages=2, grid_2d=grid_2d)
    plan = replace(plan, pass_name="patches", rules=analyse_tiles_2d(plan.variant, 64, 32, grid_2d))
    assert plan.tests_tiles
    views = []
    for part in qkv(plan, (2, 2, q_len), (2, 1, kv_len)):
        buffer = np.full((*part.shape[:2], part.shape[2] + 400, part.shape[3]), np.nan, np.float32).astype(part.dtype)
        views.append(buffer[:, :, : part.shape[2]])
        views[-1][:] = part
    check(plan, Call(*views))


@pytest.mark.parametrize(
    ("line", "warps", "step"),
    [("sin(3 * score + q_idx) * cos(kv_idx / 3)", 1, 1), ("sin(score + q_idx - kv_idx)", 2, 2)],
)
def test_long_score_lines_are_a_loop(line: str, warps: int, step: int) -> None:
    """Every pair has a score of its own, so that none may take another's place."""
    text = f"attn 1\nvariant waves {{\n    keep if q_pos >= kv_idx\n    score = {line}\n}}\n"
    plan = plan_of(text, "bf16", (16, 24), block_q=32, block_kv=64, warps=warps, stages=1)
    assert facts_of(plan).steps.score == step
    check(plan, Call(*qkv(plan, (1, 1, 70), (1, 1, 110))))


SCATTERED = """attn 1
variant scattered {
    input wanted: bool[head, _, _]
    keep if wanted[h, q_idx // 16, kv_idx // 16]
    keep if kv_idx >= 20
}
"""
STRIPES = "attn 1\nvariant stripes {\n    keep if (q_idx // 16 + kv_idx // 16) % 5 == 0 and q_pos >= kv_idx\n}\n"


@pytest.mark.parametrize("listed", [True, False])
def test_lists_of_live_tiles(listed: bool) -> None:
    """More than 32 words of 32 tiles, most of them without a live tile; one head keeps nothing."""
    plan = plan_of(SCATTERED, "bf16", (16, 16), block_q=16, block_kv=16, warps=1, stages=2, split_kv=None)
    plan = replace(plan, skip="lists" if listed else "in_kernel")
    assert facts_of(plan).tile_lists == listed
    wanted = np.random.default_rng(6).random((3, 2, 1250)) < 0.004
    wanted[0, 0, [3, 1249]], wanted[1] = True, False
    call = Call(*qkv(plan, (1, 3, 25), (1, 1, 20_000)), inputs={"wanted": wanted})
    check(plan, call)


@pytest.mark.parametrize("splits", [1, 3])
def test_lists_of_packed_batches_and_splits(splits: int) -> None:
    """Blocks of queries are counted through; a split's share begins within a word."""
    plan = plan_of(STRIPES, "fp16", (16, 16), block_q=16, block_kv=16, warps=1, stages=1, split_kv=None, skip="lists")
    cu = np.int32([0, 3, 3, 70, 90, 91]), np.int32([0, 5, 12, 752, 752, 790])
    check(plan, Call(*qkv(plan, (2, 91), (1, 790)), splits=splits, cu=cu))


def test_memory_beyond_the_rows_does_not_matter() -> None:
    """Strided views in a buffer of NaN: whatever lies between rows, or after the last key, is not read or not used."""
    plan = plan_of(CAUSAL, "bf16", (72, 72), block_q=64, warps=4, stages=2)
    views = []
    for part, heads, length in zip(qkv(plan, (1, 2, 50), (1, 1, 70)), (2, 1, 1), (50, 70, 70), strict=True):
        buffer = np.full((1, length + 64, heads, 88), np.nan, np.float32).astype(part.dtype)
        views.append(buffer.transpose(0, 2, 1, 3)[:, :, :length, :72])
        views[-1][:] = part
    check(plan, Call(*views))


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_only_visible_key_is_the_output(dtype) -> None:
    """Bit for bit, however large the score: P is exactly 1 there. Masked keys may hold NaN."""
    plan = plan_of(ONE_KEY, dtype, (32, 32), block_q=16, block_kv=32, warps=1, stages=2)
    q, k, v = qkv(plan, (1, 1, 16), (1, 1, 90))
    k[:, :, :77] = np.nan
    out, _ = forward(plan, Call(q, k, v, scale=1e4))
    np.testing.assert_array_equal(out[0, 0], np.broadcast_to(v[0, 0, 77], (16, 32)))


def test_a_maximum_that_moves_at_every_tile() -> None:
    """Scores that grow along the keys: sums and outputs are rescaled again and again, from -2000 to 2000."""
    plan = plan_of("attn 1\nvariant full {\n}\n", "bf16", (16, 16), block_q=32, block_kv=16, warps=1, stages=2)
    q, k, v = qkv(plan, (1, 1, 32), (1, 1, 400))
    k[:] = np.linspace(-1, 1, 400)[:, None]
    q[:] = np.where(np.arange(32) % 2, 1, -1)[:, None]
    check(plan, Call(q, k, v, scale=125.0))


def test_rows_that_a_proof_calls_never_empty_may_weigh_nothing() -> None:
    """A sequence without keys, and scores of -inf alone: 0, and lse is -inf."""
    plan = plan_of("attn 1\nvariant full {\n}\n", "bf16", (16, 16), block_q=32, block_kv=16, warps=1, stages=2)
    assert plan.rules.rows_never_empty
    q, k, v = qkv(plan, (1, 40), (1, 30))
    q[:, 25], k[:] = -np.inf, np.abs(k)
    call = Call(q, k, v, cu=(np.int32([0, 20, 40]), np.int32([0, 0, 30])))
    out, lse = forward(plan, call)
    nothing = [*range(20), 25]
    assert not out[0, nothing].any() and np.isneginf(lse[0, nothing]).all()
    assert np.isfinite(np.delete(lse[0], nothing)).all()
    check(plan, call)


@pytest.mark.parametrize(
    ("lines", "scale"),
    [
        ("score = 5 * tanh(score / 5)", 0.05),  # all small: the polynomial
        ("score = 5 * tanh(score / 5)", 0.4),  # some small, some not, by blocks
        ("score = 5 * tanh(score / 5)", -3.0),  # the exact form
        ("score = 5 * tanh(score / 5)", 0.0),
        ("score = score - slope[h] * (q_pos - kv_idx)", -0.3),
        ("score = 2 * tanh(score / 2) / slope[h]\nscore = score + slope[h] * (kv_idx - q_pos)", 0.03),
        ("score = score + rows[b, q_idx]\nscore = -score * slope[h]", 0.3),
        ("score = score + rows[b, clamp(kv_idx - q_pos, -20, 15) + 20]", 0.3),
    ],
)
def test_whole_tiles_take_the_cheap_form_of_score_lines(lines, scale) -> None:
    slope, rows = np.float32([0.5, -0.3]), np.linspace(-9, 9, 40, dtype=np.float32)[None]
    known = {"slope": ("f32[head]", slope), "rows": ("f32[batch, q]", rows)}
    used = {name: item for name, item in known.items() if name in lines}
    inputs = "\n".join(f"input {name}: {kind}" for name, (kind, _) in used.items())
    text = f"attn 1\nvariant scored {{\n{inputs}\nkeep if kv_idx >= 9\n{lines}\n}}\n"
    plan = plan_of(text, "bf16", (32, 32), block_q=32, block_kv=32, warps=2, stages=2)
    assert plan.rules.bounds_suffice
    given = {name: array for name, (_, array) in used.items()}
    call = Call(*qkv(plan, (1, 2, 40), (1, 2, 150)), scale=scale, inputs=given)
    out, lse = forward(plan, call)
    expected, expected_lse = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
    np.testing.assert_allclose(out.astype(np.float64), expected, atol=TOLERANCE["bf16"], rtol=0)
    np.testing.assert_allclose(lse, expected_lse, atol=4e-5, rtol=1e-6)
