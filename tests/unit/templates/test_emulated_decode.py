"""Decode kernels on an emulated GPU: items cut anywhere between thread blocks, merged by whoever comes last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attncc.analysis.mask.tiles import analyse
from attncc.kernels.decode.facts import keys_of_many_rows
from attncc.kernels.registry import facts_of
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.unit.templates.test_emulated_caches import warpgroups
from tests.unit.templates.test_emulated_kernels import (
    CAUSAL,
    DOCUMENTS,
    DROPPED,
    HEADWISE,
    SIGMOID,
    WINDOW,
    check,
    decode_plan,
    qkv,
)

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

Array = NDArray[Any]
GROUPED = """attn 1
variant grouped {
    input slope: f32[head]
    input logit: f32[head]
    input doc: i32[batch, pos]
    keep if q_pos >= kv_idx
    keep if doc[b, q_pos] == doc[b, kv_idx]
    score = score - slope[h] * (q_pos - kv_idx)
    sink logit
}
"""
SINK = (
    "attn 1\nvariant sink_of_heads {\n    input logit: f32[head]\n    keep if q_pos >= kv_idx + 40\n    sink logit\n}\n"
)
CHECKERED = """attn 1
variant checkered {
    keep if (q_pos // 32 + kv_idx // 32 + h) % 3 != 0
}
"""
FULL = "attn 1\nvariant full {}\n"


def narrow(text: str, dtype: str = "bf16", **changes: Any) -> KernelPlan:
    """Of small head dims and tiles, so that there are many tiles."""
    plan = replace(decode_plan(text, dtype, (32, 16)), **({"block_kv": 64, "stages": 2} | changes))
    return replace(plan, rules=analyse(plan.variant, plan.block_q, plan.block_kv))


@pytest.mark.parametrize(
    ("text", "group", "q_len"), [(FULL, 4, 8), (CAUSAL, 4, 16), (WINDOW, 8, 5), (GROUPED, 2, 40), (FULL, 2, 1)]
)
@pytest.mark.parametrize(("least_rows", "keys"), [(17, 32), (33, 64)])
def test_many_rows(text: str, group: int, q_len: int, least_rows: int, keys: int) -> None:
    """Two warps to four have the rows, and more keys at once; right for fewer rows too, as packed batches have them."""
    plan = narrow(text, stages=3, least_rows=least_rows, keys_at_once=keys)
    assert keys_of_many_rows(plan, least_rows)[0] == keys
    heads, rng = 2 * group, np.random.default_rng(4)
    inputs: dict[str, Any] = {}
    if text == GROUPED:
        slope, logit = (0.1 * rng.standard_normal((2, heads))).astype(np.float32)
        inputs = {"doc": np.sort(rng.integers(0, 3, (2, 900)).astype(np.int32)), "slope": slope, "logit": logit}
    check(plan, Call(*qkv(plan, (2, heads, q_len), (2, 2, 900)), inputs=inputs, blocks=7, order=1))


@pytest.mark.parametrize(
    ("text", "group", "q_len", "dims"),
    [
        (FULL, 4, 8, (64, 64)),
        (CAUSAL, 4, 16, (128, 64)),
        (WINDOW, 8, 5, (64, 128)),
        (GROUPED, 2, 40, (64, 64)),
        (FULL, 2, 1, (64, 64)),
        (DROPPED, 2, 11, (64, 64)),
        (CHECKERED, 4, 16, (64, 64)),
    ],
)
@pytest.mark.parametrize("tile", [(1, 3), (2, 3), (1, 1)])
def test_warpgroups(text: str, group: int, q_len: int, dims: tuple[int, int], tile: tuple[int, int]) -> None:
    """So many, and stages: each has all rows, and keys of its own where there are two."""
    plan = warpgroups(decode_plan(text, "bf16", dims), *tile)
    heads, rng = 2 * group, np.random.default_rng(4)
    inputs: dict[str, Any] = {}
    if text == GROUPED:
        slope, logit = (0.1 * rng.standard_normal((2, heads))).astype(np.float32)
        inputs = {"doc": np.sort(rng.integers(0, 3, (2, 900)).astype(np.int32)), "slope": slope, "logit": logit}
    check(plan, Call(*qkv(plan, (2, heads, q_len), (2, 2, 900)), scale=-0.3, inputs=inputs, blocks=7, order=1))


@pytest.mark.parametrize(
    ("dtype", "head_dims", "group", "q_len", "split_kv"),
    [
        ("bf16", (128, 128), 4, 1, None),
        ("fp16", (72, 40), 3, 2, 1),
        ("fp32", (64, 64), 8, 9, 2),
        ("bf16", (16, 256), 1, 70, None),
        ("bf16", (48, 32), 5, 7, 3),
    ],
)
def test_heads_of_a_group_stand_together(dtype, head_dims, group, q_len, split_kv) -> None:
    """One query, a few, and more than a tile holds; what depends on the head differs from row to row."""
    plan = replace(decode_plan(GROUPED, dtype, head_dims), split_kv=split_kv)
    heads, rng = 2 * group, np.random.default_rng(2)
    doc = np.sort(rng.integers(0, 3, (2, 230)).astype(np.int32))
    slope, logit = (0.1 * rng.standard_normal((2, heads))).astype(np.float32)
    inputs = {"doc": doc, "slope": slope, "logit": logit}
    call = Call(*qkv(plan, (2, heads, q_len), (2, 2, 230)), scale=-0.3, inputs=inputs, blocks=5, order=1)
    check(plan, call)


@pytest.mark.parametrize(("block_q", "q_len"), [(16, 1), (32, 9), (64, 21)])
@pytest.mark.parametrize(("dims", "keys", "blocks"), [(256, 190, 5), (192, 190, 5), (32, 4200, 130)])
def test_one_warp_merges_alone(block_q: int, q_len: int, dims: int, keys: int, blocks: int) -> None:
    """Rows of more fours of columns than it has lanes, more rows than lanes, and more parts than there is room for."""
    plan = replace(decode_plan(SINK, "bf16", (dims, dims)), block_q=block_q, block_kv=32, warps=1, stages=1)
    plan = replace(plan, rules=analyse(plan.variant, plan.block_q, plan.block_kv))
    inputs = {"logit": np.linspace(-2, 2, 6, dtype=np.float32)}
    check(plan, Call(*qkv(plan, (1, 6, q_len), (1, 2, keys)), inputs=inputs, blocks=blocks, order=2))


@pytest.mark.parametrize("text", [FULL, CAUSAL, WINDOW, DROPPED, SIGMOID, HEADWISE, CHECKERED])
@pytest.mark.parametrize("q_len", [1, 11])
def test_heads_with_masks_or_dropout_of_their_own(text: str, q_len: int) -> None:
    plan = narrow(text)
    assert facts_of(plan).heads_differ == (text in {HEADWISE, CHECKERED})
    check(plan, Call(*qkv(plan, (2, 6, q_len), (2, 2, 310)), seed=5, blocks=7, order=3))


@pytest.mark.parametrize("blocks", [20, 132])
@pytest.mark.parametrize("offset", [7, 64, 150, -5])
def test_blocks_of_rows_that_see_more_than_others(offset: int, blocks: int) -> None:
    """Ten of each head, from one tile to five: cut by their mean, which is whole for some of these, runs would cross
    them, and an empty run would lie in one."""
    plan = narrow(CAUSAL)
    check(plan, Call(*qkv(plan, (1, 8, 150), (1, 2, 300)), q_offset=offset, blocks=blocks, multiprocessors=132))


@pytest.mark.parametrize("blocks", [20, 132])
def test_blocks_of_rows_that_see_about_as_much(blocks: int) -> None:
    """One has 18 tiles, the others 19 and 20, and parts are shares of these."""
    plan = narrow(CAUSAL)
    check(plan, Call(*qkv(plan, (2, 8, 40), (2, 2, 1200)), blocks=blocks, multiprocessors=132, order=2))


WINDOW_OF_KEY_HEAD = """attn 1
variant window_of_key_head {
    input width: i32[kv_head]
    keep if q_pos - kv_idx < width[kv_h]
}
"""


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_key_heads_with_masks_of_their_own(blocks: int) -> None:
    """Each has another number of tiles, so runs are shares of all keys."""
    plan = narrow(WINDOW_OF_KEY_HEAD)
    assert not facts_of(plan).heads_differ
    assert not facts_of(plan).knows_tiles
    inputs = {"width": np.int32([300, 20])}
    check(plan, Call(*qkv(plan, (2, 6, 2), (2, 2, 310)), inputs=inputs, blocks=blocks, order=1))


CU = np.int32([0, 1, 1, 30, 31, 32, 33]), np.int32([0, 5, 12, 92, 92, 650, 651])


@pytest.mark.parametrize("blocks", [1, 4, 13])
@pytest.mark.parametrize("text", [CAUSAL, WINDOW])
def test_packed_batches(text: str, blocks: int) -> None:
    """Sequences without rows, without keys, of more rows than a tile holds, and one much longer than the others."""
    plan = narrow(text)
    check(plan, Call(*qkv(plan, (6, 33), (2, 651)), cu=CU, blocks=blocks, order=blocks))


@pytest.mark.parametrize("sequences", [33, 300, 1100])
def test_many_sequences(sequences: int) -> None:
    plan = narrow(CAUSAL)
    lengths = np.random.default_rng(3).integers(0, 3, sequences)
    lengths[[7, sequences // 2, sequences - 1]] = 700
    rows = np.minimum(lengths, 1)
    cu = tuple(np.concatenate([[0], np.cumsum(item)]).astype(np.int32) for item in (rows, lengths))
    check(plan, Call(*qkv(plan, (2, int(rows.sum())), (1, int(lengths.sum()))), cu=cu, blocks=9, order=2))


@pytest.mark.parametrize("text", [FULL, CAUSAL])
def test_sequences_of_which_lanes_have_two(text: str) -> None:
    """One of 3 tiles and one of 5 each: as many for each lane, but heads aren't alike."""
    plan = narrow(text)
    lengths = np.int32([192, 320] * 20)
    check(plan, Call(*qkv(plan, (40, 2, 1), (40, 1, 320)), kv_lens=lengths, blocks=264, multiprocessors=132))


@pytest.mark.parametrize("split_kv", [None, 5])
@pytest.mark.parametrize("text", [CAUSAL, SINK])
def test_bits_dont_depend_on_who_comes_last(text: str, split_kv: int | None) -> None:
    plan = narrow(text, split_kv=split_kv)
    inputs = {"logit": np.linspace(-2, 2, 6, dtype=np.float32)} if text == SINK else {}
    call = Call(*qkv(plan, (6, 33), (2, 651)), cu=CU, inputs=inputs, blocks=11)
    check(plan, call)
    first = forward(plan, call)
    for order in range(1, 6):
        again = forward(plan, replace(call, order=order))
        assert all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in zip(first, again, strict=True))


def test_bits_of_fixed_splits_dont_depend_on_the_batch() -> None:
    plan = narrow(CAUSAL, split_kv=3)
    q, k, v = qkv(plan, (6, 33), (2, 651))
    out, lse = forward(plan, Call(q, k, v, cu=CU, blocks=11))
    alone = Call(q[:, 31:32], k[:, 92:650], v[:, 92:650], cu=(np.int32([0, 1]), np.int32([0, 558])), blocks=4)
    for whole, part in zip((out[:, 31:32], lse[:, 31:32]), forward(plan, alone), strict=True):
        assert np.array_equal(whole.astype(np.float32), part.astype(np.float32))


@pytest.mark.parametrize("searched", [False, True])
def test_bounds_that_warps_search_for(searched: bool) -> None:
    """Runs are shares of all keys then; the hint of the second sequence is false."""
    plan = narrow(DOCUMENTS)
    plan = replace(plan, rules=analyse(plan.variant, plan.block_q, plan.block_kv, searches=searched))
    assert facts_of(plan).knows_tiles != searched
    doc = np.repeat(np.int32([[0, 1, 2], [0, 2, 1]]), [175, 190, 135], axis=1)
    check(plan, Call(*qkv(plan, (2, 4, 3), (2, 2, 500)), inputs={"doc": doc}, blocks=6, order=4))


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": 1},
        {"stages": 4, "block_kv": 16},
        {"block_q": 48, "warps": 3},
        {"block_q": 128, "warps": 4, "block_kv": 32},
        {"block_q": 16, "warps": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("q_len", [1, 13])
def test_tiles_of_schedules(changes: dict[str, int], q_len: int) -> None:
    plan = narrow(CAUSAL, **changes)
    check(plan, Call(*qkv(plan, (1, 6, q_len), (1, 2, 400)), blocks=5, order=1))


@pytest.mark.parametrize(("heads", "q_len", "keys"), [(5, 2, 700), (1, 45, 330), (8, 1, 900)])
def test_rows_are_merged_in_pieces(heads: int, q_len: int, keys: int) -> None:
    """10 rows of 6 parts as 6 and 4, 45 of 3 in pieces of 11 and one row, 8 of 7 as 5 and 3, whoever comes last."""
    plan = narrow(SINK)
    inputs = {"logit": np.linspace(-2, 2, heads, dtype=np.float32)}
    arrays = qkv(plan, (1, heads, q_len), (1, 1, keys))
    found = [Call(*arrays, inputs=inputs, blocks=8, multiprocessors=8, order=order) for order in range(4)]
    for call in found:
        check(plan, call)
    first, *others = (forward(plan, call) for call in found)
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert np.array_equal(a.view(np.uint8), b.view(np.uint8))


@pytest.mark.parametrize("q_len", [2, 40])
def test_more_parts_than_fit_shared_memory(q_len: int) -> None:
    """Rows are merged some at a time, and parts too."""
    plan = narrow(CAUSAL, block_kv=16, stages=1, split_kv=90)
    check(plan, Call(*qkv(plan, (1, 1, q_len), (1, 1, 1500)), blocks=5, order=2))


def test_few_tiles_are_one_run_a_multiprocessor() -> None:
    plan = narrow(CAUSAL)
    check(plan, Call(*qkv(plan, (2, 4, 1), (2, 2, 900)), blocks=9, multiprocessors=5, order=1))


def test_without_keys() -> None:
    plan = narrow("attn 1\nvariant sunk {\n    input logit: f32[head]\n    sink logit\n}\n")
    logit = np.float32([1, -np.inf])
    out, lse = forward(plan, Call(*qkv(plan, (2, 2, 1), (2, 1, 0)), inputs={"logit": logit}))
    assert not out.any() and np.array_equal(lse[..., 0], [logit] * 2)
