"""The forward kernels for Hopper on an emulated GPU: what the producer's walk over tiles makes of masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc import api, reference
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.plain import plain_on
from attncc.analysis.mask.tiles import analyse_tiles_2d, analyse_windows
from attncc.kernels.candidates import make_plan
from attncc.kernels.hopper_forward.facts import HopperForward
from attncc.kernels.registry import facts_of
from attncc.schedule.plan import KernelPlan
from attncc.schedule.schedule import Schedule
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.unit.templates.test_emulated_kernels import (
    BY_DISTANCE,
    CAUSAL,
    DILATED,
    DOCUMENTS,
    EVERYTHING,
    NEIGHBOURHOOD,
    ONE_KEY,
    SCATTERED,
    STRIPES,
    TOLERANCE,
    check,
    qkv,
)

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")


def plan_of(text: str, dtype: str, head_dims: tuple[int, int] = (64, 64), **settings: Any) -> KernelPlan:
    """With small tiles, of one consumer warpgroup."""
    variant = api.parse(text).variant
    chosen = {"block_q": 64, "block_kv": 32, "stages": 2, **settings}
    schedule = Schedule("s", variant.name, "forward", "sm_90a", tuple((name, (x,)) for name, x in chosen.items()))
    dims = {"head_dim": head_dims[0], "value_head_dim": head_dims[1]}
    plan = make_plan(variant, dtype=dtype, target="sm_90a", schedule=schedule, **dims)
    assert plan.family == "hopper"
    return plan


@pytest.mark.parametrize(("text", "dtype"), [(CAUSAL, "bf16"), (ONE_KEY, "fp16")])
def test_loop_bounds(text: str, dtype: str) -> None:
    """More rows than keys, and blocks of queries without a key."""
    plan = plan_of(text, dtype, (72, 40))
    check(plan, Call(*qkv(plan, (2, 2, 150), (2, 1, 100))))


@pytest.mark.parametrize("packed", [False, True])
def test_wide_outputs_are_stored_in_halves(packed: bool) -> None:
    plan = plan_of(CAUSAL, "fp16", (16, 160), block_kv=64)
    assert facts_of(plan).halves_output and not facts_of(plan_of(CAUSAL, "fp16", (16, 144), block_kv=64)).halves_output
    cu = {"cu": (np.int32([0, 3, 90]), np.int32([0, 70, 150]))} if packed else {}
    check(plan, Call(*(qkv(plan, (2, 90), (1, 150)) if packed else qkv(plan, (2, 2, 90), (2, 1, 100))), **cu))


@pytest.mark.parametrize("way", ["lists", "in_kernel"])
def test_scattered_tiles(way: str) -> None:
    """More than 32 words of 32 tiles of a list, most of them without a live tile; one head keeps nothing."""
    plan = plan_of(SCATTERED, "bf16", skip=way, split_kv=2)
    wanted = np.random.default_rng(6).random((3, 5, 2100)) < 0.001
    wanted[0, 0, [3, 2080]], wanted[1] = True, False
    check(plan, Call(*qkv(plan, (1, 3, 70), (1, 1, 33_400)), splits=2, inputs={"wanted": wanted}))


def test_lists_of_packed_batches() -> None:
    plan = plan_of(STRIPES, "fp16", skip="lists")
    cu = np.int32([0, 3, 3, 170, 190, 191]), np.int32([0, 5, 12, 752, 752, 790])
    check(plan, Call(*qkv(plan, (2, 191), (1, 790)), cu=cu))


def test_documents_found_by_search() -> None:
    """By the warp that loads; of two sequences one is not sorted as declared."""
    plan = plan_of(DOCUMENTS, "bf16")
    doc = np.random.default_rng(4).integers(0, 9, (2, 300)).astype(np.int32)
    doc[0].sort()
    doc[1, :250].sort()
    check(plan, Call(*qkv(plan, (2, 1, 170), (2, 1, 300)), inputs={"doc": doc}))


@pytest.mark.parametrize("block_q", [64, 256])
def test_everything_at_once(block_q: int) -> None:
    """With dropout, which waits for the next product where products overlap: not with the larger block."""
    plan = plan_of(EVERYTHING, "bf16", (80, 40), block_q=block_q)
    rng = np.random.default_rng(1)
    doc = np.sort(rng.integers(0, 3, (2, 190)).astype(np.int32))
    inputs = {"doc": doc, "slope": np.float32([0.5, 0.1]), "logit": np.float32([1.0, -2.0])}
    check(plan, Call(*qkv(plan, (2, 2, 130), (2, 1, 190)), scale=-0.2, seed=2**40 + 3, inputs=inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "scale"),
    [
        ("score = 5 * tanh(score / 5) - slope[h] * kv_idx", 0.1),  # some tiles small, some not
        ("score = score + slope[clamp(kv_idx - q_pos, -60, -30) + 60]", 0.3),  # one entry for the pairs of some tiles
        ("score = score - (slope[h] if q_pos >= kv_idx else slope[h + 9]) * min(abs(q_pos - kv_idx), 70)", 0.3),
        ("score = score + (0.5 if kv_idx > q_pos and kv_idx > 60 else slope[3] * max(kv_idx - 40, 0))", 0.3),
    ],
)
def test_whole_tiles_take_the_cheap_form_of_score_lines(line: str, scale: float) -> None:
    """And dropout of whole tiles."""
    plan = plan_of(f"attn 1\nvariant scored {{\ninput slope: f32[31]\n{line}\ndropout 0.3\n}}\n", "fp16", (40, 64))
    inputs = {"slope": np.linspace(-0.02, 0.02, 31, dtype=np.float32)}
    check(plan, Call(*qkv(plan, (1, 2, 90), (1, 2, 170)), scale=scale, seed=7, inputs=inputs))


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["", "keep if q_pos >= kv_idx"])
def test_forms_of_score_lines_follow_the_sizes_of_scores(mask: str) -> None:
    """Tiles that take the shorter polynomial, the longer, and the exact form, from each to each; and where a tile's
    scores turn out too large for the form that the tile before suggested."""
    text = f"attn 1\nvariant capped {{\n{mask}\nscore = 5 * tanh(score / 5)\n}}\n"
    plan = plan_of(text, "bf16", (104, 40))
    assert facts_of(plan).has_near_form
    near, far, beyond = 0.1, 0.3, 3.0  # the largest scores of a tile, as parts of the cap
    sizes = [far, far, near, far, beyond, far, near, near, beyond, beyond, near, beyond, near, near]
    q, k, v = qkv(plan, (1, 2, 500), (1, 2, 32 * len(sizes)))
    products = q.astype(np.float32) @ k.astype(np.float32).swapaxes(-1, -2)
    largest = np.abs(products).reshape(-1, len(sizes), 32).max((0, 2))
    k = (k * (5 * np.float32(sizes) / largest).repeat(32)[:, None]).astype(k.dtype)
    call = Call(q, k, v, scale=1.0)
    out, lse = forward(plan, call)
    expected, expected_lse = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
    np.testing.assert_allclose(out.astype(np.float64), expected, atol=TOLERANCE["bf16"], rtol=0)
    np.testing.assert_allclose(lse, expected_lse, atol=5e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["", "keep if q_pos >= kv_idx"])
@pytest.mark.parametrize("slope", [0.3, 0.9, 4, 60, -2])
@pytest.mark.parametrize("distance", ["kv_idx", "abs(q_pos - kv_idx)", "(q_pos - kv_idx) * (q_pos - kv_idx) / 64"])
def test_maxima_that_grow(mask: str, slope: float, distance: str) -> None:
    """From the last tile to the first: by too little for old maxima to be given up in each tile, by much, by more than
    an exponent keeps digits of, and not at all. Rows of some heads have other slopes."""
    text = f"attn 1\nvariant sloped {{\n{mask}\ninput slope: f32[head]\nscore = score - slope[h] * {distance}\n}}\n"
    plan = plan_of(text, "bf16")
    assert facts_of(plan).maxima_may_grow
    check(plan, Call(*qkv(plan, (1, 2, 390), (1, 2, 384)), inputs={"slope": np.float32([slope, slope / 8])}))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("line", ["score - kv_idx", "score - (kv_idx - 100) * (kv_idx - 90) / 64"])
def test_maxima_that_score_lines_raise_too_far_or_too_little(dtype: str, line: str) -> None:
    """Products fall or rise by more than what is added: the sums before must not be lost, and none may overflow."""
    plan = plan_of(f"attn 1\nvariant sloped {{\nscore = {line}\n}}\n", dtype)
    q, k, v = qkv(plan, (1, 2, 70), (1, 2, 384))
    q[..., 0] = 8
    k[..., 0] = np.repeat([0, 0, -30, 0, 30, -30, -30, 0, 0, -8, -16, 0], 32)
    check(plan, Call(q, k, v, scale=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("index", ["clamp(kv_idx - q_pos, -50, 40) + 50", "abs(q_pos - kv_idx)"])
@pytest.mark.parametrize(("mask", "block_kv"), [("", 128), ("keep if q_pos >= kv_idx", 64)])
def test_entries_for_distances_serve_two_rows(mask: str, block_kv: int, index: str) -> None:
    """A few keys at a time, and a whole tile at once; sequences that end within a tile or a pair of rows. Where tiles
    that are kept whole read one entry, and where they don't."""
    line = f"score = score + table[h, {index}]"
    text = f"attn 1\nvariant near {{\ninput table: f32[head, 91]\n{mask}\n{line}\n}}\n"
    plan = plan_of(text, "bf16", (16, 16), block_q=192, block_kv=block_kv)
    if "clamp" in index:
        assert (facts_of(plan).steps.masked < block_kv // 8) == (not mask)
    cu = np.int32([0, 3, 200, 331]), np.int32([0, 70, 267, 470])
    inputs = {"table": np.random.default_rng(5).normal(size=(2, 91)).astype(np.float32)}
    check(plan, Call(*qkv(plan, (2, 331), (1, 470)), cu=cu, inputs=inputs))


def test_long_tests_of_pairs_take_rounds_in_the_first_tile() -> None:
    line = "keep if sum((q_pos >> i & 1) * (kv_idx >> 2 * i & 1) << i for i in range(8)) % 3 != 1"
    plan = plan_of(f"attn 1\nvariant long {{\n{line}\n}}\n", "bf16", (16, 16), block_q=128, block_kv=128)
    assert facts_of(plan).steps.first < 16
    check(plan, Call(*qkv(plan, (1, 1, 150), (1, 1, 300))))


@pytest.mark.parametrize("stages", [1, 2])
def test_warpgroups_take_turns(stages: int) -> None:
    """Blocks of one tile, of several and of none; sequences that end within a tile."""
    text = "attn 1\nvariant dropped {\n    dropout 0.3\n}\n"
    plan = plan_of(text, "bf16", (16, 16), block_q=128, block_kv=128, stages=stages)
    assert HopperForward(plan).ping_pong
    cu = np.int32([0, 3, 140, 200, 220]), np.int32([0, 300, 300, 428, 450])
    check(plan, Call(*qkv(plan, (2, 220), (1, 450)), cu=cu, seed=11))


def test_documents_of_two_warpgroups() -> None:
    """Rows of a warp are of several documents; of some there is no key. Tiles after the first keep stale maxima."""
    plan = plan_of(DOCUMENTS, "bf16", (16, 16), block_q=128, block_kv=48)
    assert HopperForward(plan).keeps_max_under_masks
    doc = np.sort(np.random.default_rng(4).integers(0, 30, (1, 300)).astype(np.int32), axis=1)
    check(plan, Call(*qkv(plan, (1, 1, 290), (1, 1, 300)), inputs={"doc": doc}))


WINDOW = "attn 1\nvariant window {\n    keep if q_pos >= kv_idx and q_pos - kv_idx < 40\n}\n"


def test_warpgroups_pass_by_what_others_keep() -> None:
    """Tiles before and behind those of their rows; sequences that end within a tile, or without rows or keys."""
    plan = plan_of(WINDOW, "bf16", (16, 16), block_q=128, stages=3)
    assert plan.overlap
    cu = np.int32([0, 3, 3, 200, 220]), np.int32([0, 5, 12, 222, 222])
    check(plan, Call(*qkv(plan, (1, 220), (1, 222)), cu=cu))


def test_four_warpgroups() -> None:
    plan = plan_of(WINDOW, "bf16", (16, 16), block_q=256, stages=3)
    assert not plan.overlap
    check(plan, Call(*qkv(plan, (1, 1, 200), (1, 1, 220))))


FULL = "attn 1\nvariant full {}\n"


@pytest.mark.parametrize(("head_dims", "stages"), [((128, 64), 3), ((136, 80), 1)])
def test_pairs_of_blocks_load_for_each_other(head_dims: tuple[int, int], stages: int) -> None:
    """Of one panel of columns, two and three; of one head, and of two that share keys; more than run at once."""
    plan = plan_of(FULL, "bf16", head_dims, stages=stages)
    assert facts_of(plan).uses_clusters
    check(plan, Call(*qkv(plan, (1, 2, 150), (1, 1, 100)), paired=True))
    check(plan, Call(*qkv(plan, (1, 1, 128), (1, 1, 33)), paired=True))


def test_pairs_compute_their_scores_again() -> None:
    """Where stale maxima are no longer valid, from a K tile that the other block may not write to meanwhile."""
    plan = plan_of(FULL, "fp16", (104, 16), block_q=128, stages=1)
    assert facts_of(plan).uses_clusters
    q, k, v = qkv(plan, (1, 1, 256), (1, 1, 160))
    check(plan, Call(q, k * np.linspace(0.1, 30, 160)[:, None].astype(k.dtype), v, paired=True))


@pytest.mark.parametrize(("dtype", "block_q"), [("bf16", 192), ("fp16", 128), ("bf16", 256)])
def test_no_rows_for_a_warpgroup(dtype: str, block_q: int) -> None:
    """Of the last block of queries, or of a short sequence: it passes by the tiles that the others take."""
    plan = plan_of(FULL, dtype, (104, 16) if block_q < 256 else (16, 16), block_q=block_q)
    check(plan, Call(*qkv(plan, (1, 2, block_q + 10), (1, 1, 100)), paired=block_q < 256))
    cu = np.int32([0, 3, 3, 70, 273]), np.int32([0, 50, 112, 112, 190])
    check(plan, Call(*qkv(plan, (2, 273), (1, 190)), cu=cu))


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("size", [1, 20, -20])
def test_guessed_maxima(dtype: str, size: float) -> None:
    """Of first tiles that are whole; they serve where scores are near 0, not where these are large, or far below 0."""
    plan = plan_of(FULL, dtype, block_q=128)
    assert HopperForward(plan).is_unmasked
    q, k, v = qkv(plan, (1, 1, 128), (1, 1, 160))
    q, k = (q, k) if size == 1 else (abs(q), abs(k) * k.dtype.type(size))
    check(plan, Call(q, k, v))


BLOCKS = "attn 1\nvariant blocks {\n    input wanted: bool[_, _]\n    keep if wanted[q_idx // 64, kv_idx // 32]\n}\n"


def test_more_tiles_to_pass_by_than_stages() -> None:
    """Between tiles that a warpgroup takes; another takes those."""
    plan = plan_of(BLOCKS, "bf16", (16, 16), block_q=128, stages=2, skip="in_kernel")
    wanted = np.zeros((2, 14), bool)
    wanted[0, [0, 1, 9, 13]] = wanted[1, 2:11] = True
    check(plan, Call(*qkv(plan, (1, 1, 128), (1, 1, 443)), inputs={"wanted": wanted}))


@pytest.mark.parametrize(
    ("text", "grid_2d", "q_len", "kv_len"),
    [(NEIGHBOURHOOD, Grid2D(24, 8, 8), 24 * 20, 24 * 20), (DILATED, Grid2D(6, 1, 1), 6 * 37, 6 * 50)],
)
def test_tiles_2d(text: str, grid_2d: Grid2D, q_len: int, kv_len: int) -> None:
    plan = plan_of(text, "bf16", (16, 16), block_q=128, block_kv=64, stages=3)
    rules = analyse_tiles_2d(plan.variant, 128, 64, grid_2d)
    plan = replace(plan, pass_name="patches", grid_2d=grid_2d, rules=rules)
    assert plan.tests_tiles
    check(plan, Call(*qkv(plan, (1, 1, q_len), (1, 1, kv_len))))


@pytest.mark.parametrize(("q_len", "kv_len"), [(24 * 20, 24 * 20), (24 * 20, 24 * 26), (24 * 9, 24 * 7)])
@pytest.mark.parametrize("columns", [8, 12, 16, 20])
def test_windows(columns: int, q_len: int, kv_len: int) -> None:
    """Of 12 columns, which 2-D tiles of 8 look at; of more; and of fewer, so that tiles stand beside each other."""
    grid_2d = Grid2D(24, 8, columns, window=True)
    plan = plan_of(NEIGHBOURHOOD, "bf16", (16, 16), block_q=128, block_kv=4 * columns, stages=3)
    rules = analyse_windows(plan.variant, 128, 4 * columns, grid_2d)
    assert rules is not None
    plan = replace(plan, pass_name="patches", grid_2d=grid_2d, rules=rules)
    assert not plan.tests_tiles
    check(plan, Call(*qkv(plan, (1, 1, q_len), (1, 1, kv_len))))


@pytest.mark.slow
@pytest.mark.parametrize(("q_len", "kv_len"), [(24 * 20, 24 * 26), (24 * 9, 24 * 7)])
def test_windows_of_a_mask_in_plain_words(q_len: int, kv_len: int) -> None:
    """Of what it says of rows, which is written nowhere."""
    plan, grid_2d = plan_of(BY_DISTANCE, "bf16", (16, 16), block_q=128, block_kv=48), Grid2D(24, 8, 12, window=True)
    variant = plain_on(plan.variant, 24)
    assert analyse_windows(plan.variant, 128, 48, grid_2d) is None
    rules = analyse_windows(variant, 128, 48, grid_2d)
    assert rules is not None
    said, meant = (reference.mask(one, q_len, kv_len, num_heads=1) for one in (variant, plan.variant))
    assert (said == meant).all()
    plan = replace(plan, variant=variant, pass_name="patches", grid_2d=grid_2d, rules=rules)
    check(plan, Call(*qkv(plan, (1, 1, q_len), (1, 1, kv_len))))
