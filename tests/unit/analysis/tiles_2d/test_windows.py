from __future__ import annotations

import numpy as np
import pytest

from attncc import reference
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.tiles import analyse_windows
from attncc.analysis.tiles_2d.fixed import corners
from attncc.analysis.tiles_2d.windows import find_window
from attncc.evaluate import evaluate
from tests.unit.analysis.tile_cases import environment, variant_of
from tests.unit.analysis.tiles_2d.test_fixed import NEIGHBOURHOOD, positions

AHEAD = ("keep if kv_idx % 24 >= q_idx % 24", "keep if q_idx // 24 == kv_idx // 24 or kv_idx // 24 < 3")
ROWS = ("keep if abs(q_pos // 24 - kv_idx // 24) <= 1",)


@pytest.mark.parametrize("block_q", [64, 128])
@pytest.mark.parametrize("lines", [NEIGHBOURHOOD, AHEAD, ROWS, ("keep if q_pos % 24 + kv_idx % 24 == 23",)])
@pytest.mark.parametrize(("q_rows", "kv_rows"), [(1, 1), (20, 20), (13, 25), (25, 8)])
def test_windows_hold_what_is_kept(lines, block_q, q_rows, kv_rows) -> None:
    """Against every pair; those of neighbourhoods hold no row and no column that nobody keeps."""
    grid_2d, variant = Grid2D(24, 8, 12, window=True), variant_of(*lines)
    rules = analyse_windows(variant, block_q, 48, grid_2d)
    assert rules is not None and rules.columns is not None
    mask = reference.mask(variant, 24 * q_rows, 24 * kv_rows, num_heads=1)[0, 0]
    for q_first, q_last in zip(*corners(24 * q_rows, block_q, 8, 24), strict=True):
        seen = environment(24 * q_rows, 24 * kv_rows, q_first=q_first, q_last=q_last)
        begin, end, left, right = (int(evaluate(rule, seen)) for rule in (rules.kv_begin, rules.kv_end, *rules.columns))
        kept = np.flatnonzero(mask[positions(q_first, q_last, 24)].any(0))
        rows, columns = kept // 24, kept % 24
        assert ((begin <= kept) & (kept < end) & (left <= columns) & (columns < right)).all()
        if lines == NEIGHBOURHOOD and kept.size:
            assert (begin // 24, -(-end // 24)) == (rows.min(), rows.max() + 1)
            assert (left, right) == (columns.min(), columns.max() + 1)


@pytest.mark.parametrize(
    ("lines", "width", "columns"),
    [
        (("keep if abs(q_pos % 64 - kv_idx % 64) <= 6", "keep if abs(q_pos // 64 - kv_idx // 64) <= 6"), 64, 20),
        (("keep if abs(q_pos % 64 - kv_idx % 64) <= 3", "keep if abs(q_pos // 64 - kv_idx // 64) <= 9"), 64, 16),
        (("keep if abs(q_pos % 64 - kv_idx % 64) <= 15", "keep if abs(q_pos // 64 - kv_idx // 64) <= 6"), 64, None),
        (("keep if abs(q_pos % 32 - kv_idx % 32) <= 6", "keep if abs(q_pos // 32 - kv_idx // 32) <= 6"), 32, None),
        (("keep if abs(q_pos % 64 - kv_idx % 64) + abs(q_pos // 64 - kv_idx // 64) <= 6",), 64, None),
        (("keep if abs(q_pos % 64 - kv_idx % 64) <= 6", "keep if q_pos >= kv_idx"), 64, None),
        (("keep if abs(q_pos % 64 - kv_idx % 64) <= 6", "score = score * 2.0"), 64, None),
    ],
)
def test_windows_are_as_wide_as_what_tiles_2d_look_at(lines, width, columns) -> None:
    found = find_window(variant_of(*lines), Grid2D(width, 8, 8))
    assert found == (None if columns is None else Grid2D(width, 8, columns, window=True))
