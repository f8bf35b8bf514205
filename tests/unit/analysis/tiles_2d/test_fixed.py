from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from attncc import reference
from attncc.analysis.algebra.algebra import TRUE
from attncc.analysis.algebra.places import PLACE_SYMBOLS, by_places, rows_apart
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.plain import widths
from attncc.analysis.mask.tiles import analyse, analyse_tiles_2d
from attncc.analysis.tiles_2d.fixed import corners, find_grid, live_share
from attncc.evaluate import evaluate
from attncc.ir import Load, Symbol, walk
from tests.unit.analysis.tile_cases import environment, variant_of

NEIGHBOURHOOD = (
    "let x = clamp(q_idx % 24, 2, 21)",
    "keep if abs(x - kv_idx % 24) <= 2",
    "keep if abs(q_idx // 24 - kv_idx // 24) <= 3",
)
DILATED = ("keep if 0 <= q_pos - kv_idx < 96", "keep if (q_pos - kv_idx) % 6 == 0")


@pytest.mark.parametrize(
    ("lines", "grid_2d", "block_q", "block_kv"),
    [
        (NEIGHBOURHOOD, Grid2D(24, 8, 8), 64, 32),
        (NEIGHBOURHOOD, Grid2D(24, 4, 2), 16, 48),
        (NEIGHBOURHOOD, Grid2D(12, 4, 4), 32, 32),
        (DILATED, Grid2D(6, 1, 1), 16, 32),
        (DILATED, Grid2D(12, 2, 4), 32, 16),
        (("keep if kv_idx // 7 == q_idx % 5",), Grid2D(24, 8, 8), 16, 16),
        (("keep if kv_idx % 24 == 23", "keep if h < 3"), Grid2D(24, 8, 8), 32, 32),
    ],
)
@pytest.mark.parametrize(("q_rows", "kv_rows"), [(1, 1), (7, 11), (20, 20), (25, 8)])
def test_rules_of_tiles_2d_are_sound(lines, grid_2d, block_q, block_kv, q_rows, kv_rows) -> None:  # noqa: PLR0917
    """Against every pair of every tile. Those of neighbourhoods and dilated windows are exact as well."""
    variant = variant_of(*lines)
    rules = analyse_tiles_2d(variant, block_q, block_kv, grid_2d)
    q_len, kv_len = q_rows * grid_2d.width, kv_rows * grid_2d.width
    mask = reference.mask(variant, q_len, kv_len, num_heads=1)[0, 0]
    q_tiles = list(zip(*corners(q_len, block_q, grid_2d.q_columns, grid_2d.width), strict=True))
    kv_tiles = list(zip(*corners(kv_len, block_kv, grid_2d.kv_columns, grid_2d.width), strict=True))
    exact = lines in (NEIGHBOURHOOD, DILATED) and grid_2d.width in (24, 6)
    for (q_first, q_last), (kv_first, kv_last) in product(q_tiles, kv_tiles):
        box = environment(q_len, kv_len, q_first=q_first, q_last=q_last, kv_first=kv_first, kv_last=kv_last, h=0)
        begin, end = (int(evaluate(bound, box)) for bound in (rules.kv_begin, rules.kv_end))
        live = bool(evaluate(rules.any_kept, box)) and kv_last >= begin and kv_first < end
        pairs = mask[np.ix_(positions(q_first, q_last, grid_2d.width), positions(kv_first, kv_last, grid_2d.width))]
        assert live or not pairs.any()
        assert pairs.all() or not evaluate(rules.all_kept, box)
        assert not exact or live == pairs.any()


@pytest.mark.parametrize(
    ("lines", "grid_2d", "block_q", "block_kv"),
    [
        (NEIGHBOURHOOD, Grid2D(24, 8, 8), 64, 32),
        (DILATED, Grid2D(6, 1, 1), 16, 32),
        (("keep if kv_idx // 7 == q_idx % 5",), Grid2D(24, 8, 8), 16, 16),
    ],
)
def test_the_rows_that_keep_a_key_lie_within_the_bounds(lines, grid_2d, block_q, block_kv) -> None:
    variant = variant_of(*lines)
    rules = analyse_tiles_2d(variant, block_q, block_kv, grid_2d, "q")
    q_len, kv_len = 11 * grid_2d.width, 7 * grid_2d.width
    mask = reference.mask(variant, q_len, kv_len, num_heads=1)[0, 0]
    assert rules.q_bounds is not None
    for kv_first, kv_last in zip(*corners(kv_len, block_kv, grid_2d.kv_columns, grid_2d.width), strict=True):
        box = environment(q_len, kv_len, kv_first=kv_first, kv_last=kv_last, h=0)
        begin, end = (int(evaluate(bound, box)) for bound in (rules.q_bounds.q_begin, rules.q_bounds.q_end))
        rows = np.flatnonzero(mask[:, positions(kv_first, kv_last, grid_2d.width)].any(axis=1))
        assert all((begin <= rows) & (rows < end))
        assert int(evaluate(rules.q_bounds.full_begin, box)) >= int(evaluate(rules.q_bounds.full_end, box))


@pytest.mark.parametrize(
    ("lines", "width"),
    [
        (NEIGHBOURHOOD, 24),
        (DILATED, 6),
        (("let p = q_pos + 3", "keep if p % 24 == (kv_idx - 5) % 24", "keep if (p - kv_idx) // 24 < 4"), 24),
        (("keep if (kv_idx * 3) % 8 <= q_idx % 8", "keep if (q_len + kv_idx) // 8 != (q_idx - q_len) // 8"), 8),
    ],
)
@pytest.mark.parametrize(("q_rows", "kv_rows"), [(7, 11), (11, 7)])
def test_keep_lines_by_places_say_the_same(lines, width, q_rows, kv_rows) -> None:
    """Of every pair, queries before the first key included."""
    variant, q_len, kv_len = variant_of(*lines), q_rows * width, kv_rows * width
    rows, keys = np.arange(q_len)[:, None], np.arange(kv_len)
    places = dict(zip(PLACE_SYMBOLS, (rows // width, rows % width, keys // width, keys % width), strict=True))
    box = environment(q_len, kv_len, h=0).with_symbols(**places)
    found, apart = np.ones((2, q_len, kv_len), bool)
    for keep in variant.keeps:
        grid_2d = Grid2D(width, 8, 8)
        condition = by_places(keep.condition, variant.lets, grid_2d)
        found &= evaluate(condition, box)
        for axis, part in zip(("column", "row", ""), rows_apart(condition, grid_2d), strict=True):
            assert not axis or not any(axis in node.name for node in walk(part) if isinstance(node, Symbol))
            apart &= evaluate(part, box)
    assert (found == reference.mask(variant, q_len, kv_len, num_heads=1)[0, 0]).all() and (found == apart).all()


def test_rows_apart_from_columns() -> None:
    """Both of a neighbourhood; neither of what takes them together, or where lanes differ in rows."""
    variant = variant_of(
        "keep if abs(q_idx % 24 - kv_idx % 24) <= 2 and q_idx // 24 == kv_idx // 24 and q_idx >= kv_idx"
    )
    for columns, left in ((8, (False, False, False)), (4, (True, True, False))):
        grid_2d = Grid2D(24, columns, columns)
        parts = rows_apart(by_places(variant.keeps[0].condition, variant.lets, grid_2d), grid_2d)
        assert tuple(part == TRUE for part in parts) == left


def test_lookups_that_cancel_are_by_places_too() -> None:
    """They leave a mask its 2-D grid: its normal form has none."""
    variant = variant_of("input t: i32[kv]", *NEIGHBOURHOOD, "let read = t[kv_idx]", "keep if read - t[kv_idx] <= 0")
    assert widths(variant) == (24,)
    found = by_places(variant.keeps[-1].condition, variant.lets, Grid2D(24, 8, 8))
    read = {node.name for node in walk(found) if isinstance(node, Symbol)}
    assert any(isinstance(node, Load) for node in walk(found)) and read == {"kv_row_idx", "kv_column_idx"}


def positions(first: int, last: int, width: int) -> np.ndarray:
    rows, columns = np.arange(first // width, last // width + 1), np.arange(first % width, last % width + 1)
    return (rows[:, None] * width + columns).ravel()


@pytest.mark.parametrize(
    ("lines", "grid_2d"),
    [
        (
            ("keep if abs(q_idx % 256 - kv_idx % 256) <= 6", "keep if abs(q_idx // 256 - kv_idx // 256) <= 6"),
            Grid2D(256, 8, 8),
        ),
        (
            ("keep if abs(q_idx % 2000 - kv_idx % 2000) <= 6", "keep if abs(q_idx // 2000 - kv_idx // 2000) <= 6"),
            Grid2D(2000, 8, 8),
        ),
        (("keep if abs(q_idx % 1000000 - kv_idx % 1000000) <= 6",), None),
        (DILATED, Grid2D(6, 1, 1)),
        (("keep if q_pos >= kv_idx",), None),
        (("keep if q_idx // 64 == kv_idx // 64",), None),
        (("input step: i32", "keep if (q_pos - kv_idx) % step == 0"), None),
        (("keep if scale > 0.1", *DILATED), None),  # a call's own
        (("keep if h % 4 == 3", *DILATED), Grid2D(6, 1, 1)),
        (("keep if h > 0", *DILATED), Grid2D(6, 1, 1)),
        (("keep if b == 3", *DILATED), Grid2D(6, 1, 1)),
        # Of what nothing lives on the sample.
        (("keep if h >= 1000", *DILATED), None),
        (("keep if q_pos - kv_idx >= 4096 and kv_idx % 4 == 0",), None),
        (("keep if q_pos < 0 and kv_idx // 64 % 2 == 1",), None),
        (("keep if num_heads * num_kv_heads % 3 != 2 and kv_idx % 3 == 0",), None),
    ],
)
def test_the_grid_is_found_where_it_pays(lines, grid_2d) -> None:
    variant = variant_of(*lines)
    assert find_grid(variant, 128, 64, analyse(variant, 128, 64)) == grid_2d


IN_16_COLUMNS = ("keep if abs(q_idx % 16 - kv_idx % 16) <= 2", "keep if abs(q_idx // 16 - kv_idx // 16) <= 6")
TILES = ((64, 32), (128, 64), (192, 64), (192, 96), (256, 128))


@cache
def mask_in_16_columns() -> np.ndarray:
    return reference.mask(variant_of(*IN_16_COLUMNS), 256 * 16, 256 * 16, num_heads=1)[0, 0]


@pytest.mark.parametrize(("block_q", "block_kv"), TILES)
def test_the_share_of_live_pairs_is_that_of_brute_force(block_q: int, block_kv: int) -> None:
    """Of whole tiles of queries, on the sample's 256 rows of 16 columns."""
    variant, grid_2d, length = variant_of(*IN_16_COLUMNS), Grid2D(16, 8, 8), 256 * 16
    mask = mask_in_16_columns()
    q_tiles = [positions(*ends, 16) for ends in zip(*corners(length, block_q, 8, 16), strict=True)]
    kv_tiles = [positions(*ends, 16) for ends in zip(*corners(length, block_kv, 8, 16), strict=True)]
    whole = [tile for tile in q_tiles if tile.size == block_q]
    live = sum(keys.size for rows in whole for keys in kv_tiles if mask[np.ix_(rows, keys)].any())
    rules = analyse_tiles_2d(variant, block_q, block_kv, grid_2d)
    assert live_share(rules, grid_2d, block_q, block_kv) == pytest.approx(live / len(whole) / length)


def test_the_share_grows_with_the_tiles_and_meets_no_period() -> None:
    """Of 1-D tiles a mask of period 128 keeps half the keys for one block of queries, and all for the next."""
    variant, grid_2d = variant_of(*IN_16_COLUMNS), Grid2D(16, 8, 8)
    shares = [live_share(analyse_tiles_2d(variant, *tile, grid_2d), grid_2d, *tile) for tile in TILES]
    assert shares == sorted(shares)
    variant = variant_of("keep if q_pos % 128 >= kv_idx % 128")
    assert live_share(analyse(variant, 64, 32), None, 64, 32, 128) == pytest.approx(0.75, abs=0.01)


def test_tiles_larger_than_the_sample_have_a_share() -> None:
    """Of 512 rows of a 2-D grid of which the sample has 256."""
    variant, grid_2d = variant_of("keep if q_pos % 16 >= kv_idx % 16"), Grid2D(16, 1, 1)
    assert live_share(analyse_tiles_2d(variant, 512, 64, grid_2d), grid_2d, 512, 64) == pytest.approx(17 / 32)


def test_the_share_is_that_of_several_heads_and_batches() -> None:
    rules = {name: analyse(variant_of(f"keep if {name} % 4 == 3"), 64, 32) for name in ("h", "b")}
    for of in rules.values():
        assert live_share(of, None, 64, 32, 16) == pytest.approx(0.25, abs=0.1)
