"""Loop bounds: the hull of what a q block keeps, and the range in which it keeps everything."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.mask.tiles import analyse
from attncc.analysis.rules import TileRules
from attncc.evaluate import Array, Environment, evaluate
from attncc.ir import show

from ..tile_cases import bounds, environment, mask_of, tiles, variant_of

INPUTS = {"w": np.asarray(23, np.int32), "n": np.asarray(23, np.int64), "kept": np.array([40], np.int64)}
DECLARED = ("input w: i32", "input n: i64", "input kept: i64[batch]")

# Predicates with one range of keys for each row, whose hull and core over a q block are the bounds exactly.
BANDS = [
    "q_pos >= kv_idx", "q_idx >= kv_idx", "q_pos <= kv_idx", "0 <= q_pos - kv_idx < 17", "0 <= q_pos - kv_idx < w",
    "0 <= q_pos - kv_idx < n", "abs(q_pos - kv_idx) <= 9", "kv_idx < w", "kv_idx < n", "kv_idx < kept[b]",
    "kv_idx < w or q_pos >= kv_idx", "q_pos // 16 >= kv_idx // 16", "q_idx // 20 == kv_idx // 20",
    "2 * kv_idx <= q_idx", "3 * kv_idx + 1 > q_pos", "(kv_idx - 5) // 8 <= q_idx // 8", "-kv_idx // 4 >= -q_idx",
    "kv_idx >= 7 and kv_idx < 60", "q_idx >= 32 and kv_idx < 20", "q_idx >= 32 or kv_idx < 20",
    "(kv_idx < 20 if h < 1 else kv_idx > 50)", "not (kv_idx > q_pos or kv_idx < 5)", "q_idx < 40",
    "min(kv_idx, q_idx) < 20", "kv_idx >> 3 <= q_idx >> 3", "kv_idx < min(q_idx, 40)",
    "clamp(q_idx, 10, 50) - 4 <= kv_idx <= clamp(q_idx, 10, 50) + 4",
]  # fmt: skip

LENGTHS = [(1, 1), (97, 97), (113, 203), (200, 100), (1, 300), (239, 1)]


def hull(columns: Array) -> tuple[int, int]:
    found = np.flatnonzero(columns)
    return (int(found[0]), int(found[-1]) + 1) if found.size else (0, 0)


@pytest.mark.parametrize("text", BANDS)
def test_bounds_of_bands_are_exact(text: str) -> None:
    rules = analyse(variant_of(*DECLARED, f"keep if {text}"), 32, 32)
    assert rules.bounds_suffice
    for q_len, kv_len in LENGTHS:
        seen = environment(q_len, kv_len, INPUTS)
        mask = mask_of(variant_of(*DECLARED, f"keep if {text}"), seen)
        for first in range(0, q_len, 32):
            rows = mask[first : first + 32]
            begin, end, full_begin, full_end = bounds(rules, seen, first, min(first + 32, q_len) - 1)
            assert (begin, end) == hull(rows.any(axis=0)) or (begin >= end and not rows.any())
            assert (full_begin, full_end) == hull(rows.all(axis=0)) or (
                full_begin >= full_end and not rows.all(axis=0).any()
            )


# Those where no row is kept for one limit of a block's keys and dropped for another.
COLUMN_BANDS = [text for text in BANDS if "kv_idx < 5" not in text]


@pytest.mark.parametrize("text", COLUMN_BANDS)
def test_rows_of_bands_are_exact(text: str) -> None:
    """With the roles exchanged: the rows that a block of keys matters to, and those that keep all of it."""
    variant = variant_of(*DECLARED, f"keep if {text}")
    rules = analyse(variant, 32, 32, "q")
    assert rules.bounds_suffice and rules.q_bounds is not None
    for q_len, kv_len in LENGTHS:
        seen = environment(q_len, kv_len, INPUTS)
        mask = mask_of(variant, seen)
        for first in range(0, kv_len, 32):
            keys, last = mask[:, first : first + 32], min(first + 32, kv_len) - 1
            block = seen.with_symbols(kv_first=first, kv_last=last)
            names = ("q_begin", "q_end", "full_begin", "full_end")
            begin, end, *full = (int(evaluate(getattr(rules.q_bounds, name), block)) for name in names)
            assert (begin, end) == hull(keys.any(axis=1)) or (begin >= end and not keys.any())
            assert tuple(full) == hull(keys.all(axis=1)) or (full[0] >= full[1] and not keys.all(axis=1).any())


def check_all(rules: TileRules, mask: Array, seen: Environment, blocks: tuple[int, int]) -> None:
    """Bounds that suffice, and tiles by their rule, over a whole grid: sound, and the bounds hold what is kept."""
    for rows, keys, ends in tiles(*mask.shape, *blocks):
        here, part = seen.with_symbols(**ends), mask[rows, keys]
        begin, end, full_begin, full_end = bounds(rules, seen, ends["q_first"], ends["q_last"])
        inside = keys.start < end and keys.stop > begin
        full = full_begin <= keys.start and keys.stop <= full_end
        assert inside or not part.any()
        assert part.all() or not full
        assert evaluate(rules.any_kept, here) or not part.any()
        assert part.all() or not evaluate(rules.all_kept, here)


@pytest.mark.parametrize(
    "text",
    [
        "kv_idx < 16 or 0 <= q_pos - kv_idx < 40",  # a gap between two ranges
        "(q_idx - kv_idx) % 8 == 0 and q_pos >= kv_idx",
        "q_idx != kv_idx",
        "kv_idx // 8 + kv_idx < q_idx",
        "kv_idx < 30 if q_idx % 40 < 20 else kv_idx > 60",
        "kv_idx < 10 or 30 <= kv_idx < 50 or 60 <= kv_idx < 64 or kv_idx >= 90 or 20 < kv_idx < 25",
    ],
)
def test_bounds_of_other_masks_are_sound_and_leave_work_to_the_tile_rule(text: str) -> None:
    variant = variant_of(f"keep if {text}")
    rules = analyse(variant, 32, 16)
    assert not rules.bounds_suffice and rules.decides
    for q_len, kv_len in LENGTHS:
        seen = environment(q_len, kv_len)
        check_all(rules, mask_of(variant, seen), seen, (32, 16))


def test_full_ranges_that_touch_are_one() -> None:
    variant = variant_of("keep if kv_idx < 40 or 40 <= kv_idx < 70")
    rules = analyse(variant, 32, 16)
    assert bounds(rules, environment(32, 100), 0, 31) == (0, 70, 0, 70)


def test_of_full_ranges_apart_the_longer_is_taken() -> None:
    variant = variant_of("input w: i32", "keep if w <= kv_idx < w + 10 or 50 <= kv_idx < 80")
    rules = analyse(variant, 32, 16)
    for w, expected in ((3, (3, 80, 50, 80)), (45, (45, 80, 45, 80)), (90, (50, 100, 50, 80))):
        assert bounds(rules, environment(32, 200, {"w": np.asarray(w, np.int32)}), 0, 31) == expected


def test_bounds_hold_for_lengths_of_nothing() -> None:
    for text in BANDS:
        rules = analyse(variant_of(*DECLARED, f"keep if {text}"), 32, 32)
        begin, end, _, full_end = bounds(rules, environment(4, 0, INPUTS), 0, 3)
        assert end == 0 and full_end == 0 and begin == 0


@pytest.mark.parametrize("value", [-(2**63), -(2**63) + 1, -1, 0, 50, 2**62, 2**63 - 1])
def test_64_bit_inputs_of_any_size(value: int) -> None:
    """A window or a limit of any size: what doesn't wrap in the mask is exact, what does is still sound."""
    inputs = {"n": np.asarray(value, np.int64)}
    seen = environment(70, 90, inputs)
    for text in (
        "q_pos - kv_idx < n",
        "kv_idx < n",
        "kv_idx - n < q_idx",
        "kv_idx + n // 2 < 40",
        "kv_idx >= q_pos - n",
    ):
        variant = variant_of("input n: i64", f"keep if {text}")
        check_all(analyse(variant, 16, 16), mask_of(variant, seen), seen, (16, 16))


def test_bounds_of_data_are_read_once_a_q_block() -> None:
    """The first key of each document, as packed batches give it: limits from the rows' least and greatest."""
    variant = variant_of("input start: i32[q]", "keep if start[q_idx] <= kv_idx <= q_idx")
    rules = analyse(variant, 32, 32)
    assert rules.bounds_suffice and "start__min" in show(rules.kv_begin) and "start__max" in show(rules.full_begin)


def test_kernels_need_few_instructions() -> None:
    """Per tile: two comparisons and two sums for causal, about ten operations for a window."""
    causal = analyse(variant_of("keep if q_pos >= kv_idx"), 128, 128)
    assert show(causal.any_kept) == "(kv_first <= (q_last + q_offset))"
    assert show(causal.all_kept) == "(kv_last <= (q_first + q_offset))"
    assert show(causal.kv_end) == "min(max((q_last + (q_offset + 1)), 0), kv_len)"
    assert show(causal.kv_begin) == "0" and show(causal.full_begin) == "0"
    window = analyse(variant_of("keep if 0 <= q_pos - kv_idx < 1024"), 128, 128)
    assert show(window.kv_begin) == "min(max((q_first + (q_offset - 1023)), 0), kv_len)"
