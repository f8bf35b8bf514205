"""Bounds of one axis that a mask's comparisons imply, and tiles that are EMPTY by them."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.mask.normal_form import normal_form
from attncc.analysis.mask.tiles import analyse
from attncc.evaluate import evaluate
from attncc.ir import show
from tests.unit.analysis.tile_cases import environment, mask_of, tiles, variant_of

PLACES = (
    "let dy = q_idx // 16 - kv_idx // 16",
    "let dx = q_idx % 16 - kv_idx % 16",
)
BITS = 3 * 16 + 3  # of a place within a window of 4 x 4


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("keep if abs(dx) + abs(dy) <= 3", 8),
        ("keep if abs(dx) + 2 * abs(dy) <= 6", 8),
        (f"keep if ((q_idx ^ kv_idx) & ~{BITS}) == 0", 4),
        (f"keep if (q_idx & ~{BITS}) == (kv_idx & ~{BITS})", 4),
        ("keep if q_idx >> 6 == kv_idx >> 6 and ((q_idx ^ kv_idx) & 12) == 0", 4),
    ],
)
def test_tiles_are_sound_and_few(line: str, most: int) -> None:
    """`most`: how many tiles of 16 keys a block of 16 queries may leave, of 16."""
    variant = variant_of(*PLACES, line)
    rules, call = analyse(variant, 16, 16), environment(256, 256)
    kept, live = mask_of(variant, call), 0
    for rows, keys, ends in tiles(256, 256, 16, 16):
        seen = call.with_symbols(**ends)
        part = np.broadcast_to(kept, (*kept.shape[:-2], 256, 256))[..., rows, keys]
        any_kept, all_kept = bool(np.all(evaluate(rules.any_kept, seen))), bool(np.all(evaluate(rules.all_kept, seen)))
        assert any_kept or not part.any()
        assert not all_kept or part.all()
        live += any_kept
    assert live <= most * 16


Y, X = "(kv_idx // 16)", "(kv_idx % 16)"


def implied(*lines: str) -> tuple[list[str], list[str]]:
    found = normal_form(variant_of(*PLACES, *lines), 1, 1).implied
    return [show(part) for part in found.joint], [show(part) for part in found.single]


def test_sums_in_which_an_axis_cancels() -> None:
    joint, single = implied("keep if abs(dx) + 2 * abs(dy) <= 9")
    assert sorted(joint) == [
        f"({X} <= ((q_idx % 16) + 9))",
        f"({X} >= ((q_idx % 16) - 9))",
        f"({Y} <= ((q_idx // 16) + 4))",
        f"({Y} >= ((q_idx // 16) - 4))",
    ]
    assert single == []


def test_sums_of_two_lines_with_a_length() -> None:
    joint, _ = implied("keep if dx + dy <= q_len // 2", "keep if dy - dx <= 3")
    assert joint == ["(((kv_idx // 16) * 2) >= (((q_idx // 16) * 2) - ((q_len // 2) + 3)))"]


def test_what_is_left_where_the_other_axis_is_least() -> None:
    joint, single = implied("keep if dx * dx + dy * dy <= 36")
    assert joint == []
    assert sorted(single) == [
        f"(({X} >= ((q_idx % 16) - 6)) and ({X} <= ((q_idx % 16) + 6)))",
        f"(({Y} >= ((q_idx // 16) - 6)) and ({Y} <= ((q_idx // 16) + 6)))",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ("keep if abs(dx) <= 3 and abs(dy) <= 5",),
        ("keep if abs(dx) <= 3", "keep if dy <= 5", "keep if abs(q_idx - kv_idx) <= 1000"),
        (
            "keep if abs(dx) + abs(dy) <= 6",
            "keep if abs(dx) <= 5 and abs(dy) <= 6",
        ),  # bounds that are said, and tighter
        ("keep if abs(dx) + abs(dy) >= 6",),  # none of either
        ("input d: i32[pos]", "keep if d[q_pos] + dx <= d[kv_idx] and d[kv_idx] + dx <= d[q_pos]"),
    ],
)
def test_nothing_is_said_again(lines: tuple[str, ...]) -> None:
    assert implied(*lines) == ([], [])


def test_full_tiles_need_no_more() -> None:
    """What is implied tells of EMPTY tiles alone: a test of all pairs asks for the lines."""
    variant = variant_of(*PLACES, "keep if abs(dx) + abs(dy) <= 40")
    without = variant_of(*PLACES, "keep if dx + dy <= 40 and dx - dy <= 40", "keep if dy - dx <= 40 and -dx - dy <= 40")
    rules = analyse(variant, 16, 16)
    assert show(rules.all_kept).count("<=") <= 4
    assert sorted(show(rules.all_kept).split(" and ")) == sorted(show(analyse(without, 16, 16).all_kept).split(" and "))
