"""Truth of bools over a tile: any and all, against all its pairs."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.algebra.algebra import FALSE, TRUE
from attncc.analysis.mask.tiles import analyse
from attncc.evaluate import evaluate

from ..tile_cases import environment, mask_of, tiles, variant_of

INPUTS = {"w": np.asarray(9, np.int32), "n": np.asarray(9, np.int64)}
DECLARED = ("input w: i32", "input n: i64")

EXACT = [
    "q_pos >= kv_idx", "q_idx == kv_idx", "q_idx != kv_idx", "0 <= q_pos - kv_idx < w", "0 <= q_pos - kv_idx < n",
    "abs(q_pos - kv_idx) <= 8", "kv_idx < w or q_pos >= kv_idx", "q_pos // 16 >= kv_idx // 16",
    "q_idx // 20 == kv_idx // 20", "(q_idx - kv_idx) % 24 == 3", "q_idx % 64 == kv_idx % 64",
    "kv_idx % w == 3 or q_idx > 9", "kv_idx % 24 < 5", "abs(q_idx - kv_idx) % 32 == 0", "kv_idx & 32 != 0",
    "not (kv_idx < 20 and q_idx < 30)", "kv_idx < 16 if q_idx < 40 else kv_idx >= 48", "(kv_idx < 16) == (q_idx < 40)",
    "q_idx < kv_idx or q_idx >= kv_idx",
    "q_pos < 3 * kv_idx", "kv_idx < n - 4", "h < 1 or kv_idx < 5", "h > 0 or kv_idx < 5", "min(q_idx, kv_idx) < 20",
    "max(q_idx, 30) > kv_idx", "kv_idx * w < 500", "clamp(q_idx, 10, 50) - 4 <= kv_idx <= clamp(q_idx, 10, 50) + 4",
]  # fmt: skip


@pytest.mark.parametrize("text", EXACT)
@pytest.mark.parametrize(("q_len", "kv_len"), [(97, 97), (113, 203), (100, 60)])
def test_every_decidable_tile_is_decided(text: str, q_len: int, kv_len: int) -> None:
    variant = variant_of(*DECLARED, f"keep if {text}")
    rules = analyse(variant, 16, 16)
    seen = environment(q_len, kv_len, INPUTS)
    mask = mask_of(variant, seen)
    for rows, keys, ends in tiles(q_len, kv_len, 16, 16):
        here = seen.with_symbols(**ends)
        found = bool(evaluate(rules.any_kept, here)), bool(evaluate(rules.all_kept, here))
        assert found == (mask[rows, keys].any(), mask[rows, keys].all()), ends


def test_a_comparison_of_floats_is_unknown() -> None:
    rules = analyse(variant_of("keep if q_idx * 0.5 > kv_idx"), 64, 64)
    assert (rules.any_kept, rules.all_kept) == (TRUE, FALSE)
    assert rules.undecided == ((0, "it compares floats"),)
    assert not rules.decides and rules.bounds_suffice


def test_a_comparison_of_floats_that_do_not_vary_is_known() -> None:
    variant = variant_of("input cap: f32", "keep if cap > 3.0 or q_idx >= kv_idx")
    rules = analyse(variant, 64, 64)
    for cap, kept in ((4.0, True), (2.0, False)):
        seen = environment(
            64, 256, {"cap": np.asarray(cap, np.float32)}, q_first=0, q_last=63, kv_first=64, kv_last=127
        )
        assert evaluate(rules.any_kept, seen) == evaluate(rules.all_kept, seen) == kept


def test_the_line_that_leaves_tiles_partial_is_named() -> None:
    variant = variant_of("input x: f32[pos]", "keep if q_pos >= kv_idx", "keep if x[kv_idx] > x[q_pos]")
    assert analyse(variant, 64, 64).undecided == ((1, "it compares floats"),)
