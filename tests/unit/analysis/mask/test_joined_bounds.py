"""Bounds that a mask's comparisons give only together, and equal bits of rows and columns."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.mask.tiles import analyse
from attncc.evaluate import evaluate
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
