from __future__ import annotations

import pytest

from attncc.kernels.candidates import make_plan
from attncc.kernels.instruction_cost import (
    SELDOM_CODE,
    WIDE_SELDOM_CODE,
    Pressure,
    instruction_cost,
    key_line_bits,
    portable_pressure,
    score_step,
    steps,
)
from tests.printed import variant

DOCUMENTS = "input doc: i32[batch, pos] nondecreasing\nkeep if doc[b, q_pos] == doc[b, kv_idx]"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", 0),
        ("keep if causal()", 0),  # a key set
        ("keep if q_idx // 7 == 3", 0),  # the same for all keys of a row
        ("keep if window(9) or kv_idx % 4 == 2", 0),
        ("keep if kv_idx * q_idx < 9", 2),
        ("input bias: f32[kv]\nscore = score + bias[kv_idx]", 9),
        ("input slope: f32[head]\nscore = score + slope[h]", 2),
        ("input slope: f32[head]\nscore = score + slope[h]\nnormalize none", 1),
        ("score = 9 * tanh(score / 9) - kv_idx", 6),
        ("let far = (q_idx - kv_idx) % 3\nkeep if far == 1\nkeep if far == 2", 9),
        ("dropout 0.5", 16),
    ],
)
def test_what_changes_from_key_to_key_weighs(lines: str, expected: int) -> None:
    assert instruction_cost(variant(lines)) == expected


@pytest.mark.parametrize(
    ("lines", "room", "block_kv"),
    [
        ("", Pressure.NOTHING, 64),
        ("score = 9 * tanh(score / 9)", Pressure.LITTLE, 48),
        ("keep if causal()", Pressure.NOTHING, 64),
        (DOCUMENTS, Pressure.NOTHING, 64),  # tested apart from the loop
        ("score = tanh(score * score)", Pressure.MUCH, 32),
        ("keep if causal()\ndropout 0.1", Pressure.MUCH, 32),
    ],
)
def test_what_a_variant_needs_registers_for_tells_the_tiles_to_begin_with(
    lines: str, room: Pressure, block_kv: int
) -> None:
    found = variant(lines)
    plan = make_plan(found, dtype="bf16", head_dim=128, value_head_dim=128, target="sm_90")
    assert portable_pressure(found, backward=False) == room
    assert plan.block_kv == block_kv
    assert plan.block_q // plan.warps == (16 if room == Pressure.MUCH else 32)


def test_backward_masks_weigh() -> None:
    found = variant(DOCUMENTS)
    assert portable_pressure(found, backward=True) == Pressure.MUCH


@pytest.mark.parametrize(
    ("lines", "tiles", "step"),
    [
        ("keep if causal()", (2, 16), 16),
        ("score = 9 * tanh(score / 9)", (2, 8), 8),
        ("score = sin(cos(score))", (1, 8), 1),
        ("score = sin(score)", (1, 4), 4),
        ("score = sin(score)", (1, 8), 2),
        ("score = sin(score)", (1, 12), 3),
    ],
)
def test_long_scores_are_handled_in_steps(lines: str, tiles: tuple[int, int], step: int) -> None:
    assert score_step(variant(lines), *tiles) == step


def test_masked_tiles_are_loops_sooner() -> None:
    assert score_step(variant("score = 9 * tanh(score / 9)"), 2, 8, SELDOM_CODE) == 4


def test_what_is_rare_takes_shorter_rounds() -> None:
    """Of a block's tiles the first, and without a mask the last; more than eight warps have no registers for rounds."""
    lookup = "input distance: i32[q, _]\ninput bias: f32[_]\nscore = score + bias[distance[q_idx, kv_idx]]"
    assert [steps(variant(lookup + mask), 8, 1, 12).masked for mask in ("", "\nkeep if causal()")] == [4, 6]
    softcap = variant("score = 9 * tanh(score / 9)")
    assert [steps(softcap, 8, 1, 8, seldom).masked for seldom in (SELDOM_CODE, WIDE_SELDOM_CODE)] == [8, 4]
    tests = variant("keep if sum((q_pos >> i & 1) * (kv_idx >> 2 * i & 1) << i for i in range(8)) % 3 != 1")
    assert [steps(tests, warps, 1, 12).first for warps in (8, 12)] == [3, 12]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("input x: f32[kv]\nscore = score + x[kv_idx]", {0}),  # all rows share it
        ("input x: bf16[q, kv]\nlet key = kv_idx\nscore = score + x[q_idx, key]", {16}),
        ("input x: bool[q, kv]\ninput y: f32[kv]\nkeep if x[q_idx, kv_idx]\nscore = score + y[kv_idx]", {0, 8}),
        ("input x: i32[q, kv]\ninput y: f32[_]\nscore = score + y[x[q_idx, kv_idx]]", set()),  # anywhere
        ("input x: f32[kv]\nscore = sin(cos(score + x[kv_idx]))", set()),  # the rest is long
        ("", set()),
    ],
)
def test_lines_that_are_read_at_keys(lines: str, expected: set[int]) -> None:
    assert key_line_bits(variant(lines)) == expected
