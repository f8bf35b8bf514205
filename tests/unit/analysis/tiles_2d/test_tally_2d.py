"""Tiles of a 2-D grid are counted as brute force over the pairs of a mask counts them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from attncc import reference
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.grid import Tally
from attncc.analysis.mask.tiles import analyse_tiles_2d, analyse_windows
from attncc.analysis.rules import TileKind
from attncc.analysis.tiles_2d import tally_2d as counting
from attncc.analysis.tiles_2d.fixed import corners
from attncc.analysis.tiles_2d.tally_2d import tally_2d
from attncc.ir import Variant
from tests.unit.analysis.tile_cases import environment, variant_of
from tests.unit.analysis.tiles_2d.test_fixed import NEIGHBOURHOOD, positions

PER_HEAD = ("keep if abs(q_idx % 24 - kv_idx % 24) <= h", "keep if abs(q_idx // 24 - kv_idx // 24) <= 1")
HEADS, Q_ROWS, KV_ROWS = 3, 20, 17
LENGTHS = 24 * Q_ROWS, 24 * KV_ROWS


@cache
def mask_of(lines: tuple[str, ...]) -> tuple[Variant, np.ndarray]:
    variant = variant_of(*lines)
    mask = reference.mask(variant, *LENGTHS, num_heads=HEADS)[0]
    return variant, np.broadcast_to(mask, (HEADS, *LENGTHS))


def counted(rules, blocks: tuple[int, int], grid_2d: Grid2D) -> Tally:
    seen = environment(*LENGTHS, h=np.arange(HEADS)[:, None, None], num_heads=HEADS, num_kv_heads=HEADS)
    return tally_2d(rules, seen, HEADS, blocks, grid_2d)


@pytest.mark.parametrize("slab", [1, 1 << 22])
@pytest.mark.parametrize(
    ("grid_2d", "blocks"), [(Grid2D(24, 8, 8), (64, 32)), (Grid2D(24, 4, 2), (16, 48)), (Grid2D(24, 1, 1), (16, 16))]
)
@pytest.mark.parametrize("lines", [NEIGHBOURHOOD, PER_HEAD])
def test_tiles_2d(lines, grid_2d: Grid2D, blocks: tuple[int, int], slab: int, monkeypatch) -> None:
    monkeypatch.setattr(counting, "SLAB", slab)
    variant, mask = mask_of(lines)
    kinds, keys, rows, used = dict.fromkeys(TileKind, 0), 0, 0, np.zeros((HEADS, LENGTHS[1]), bool)
    used_rows: list[int] = []  # of each tile of queries
    sides = ((LENGTHS[0], blocks[0], grid_2d.q_columns), (LENGTHS[1], blocks[1], grid_2d.kv_columns))
    of_q, of_kv = ([positions(*ends, 24) for ends in zip(*corners(*side, 24), strict=True)] for side in sides)
    for h in range(HEADS):
        for q_tile in of_q:
            seeing = False
            for kv_tile in of_kv:
                pairs = mask[h][np.ix_(q_tile, kv_tile)]
                kinds[TileKind.FULL if pairs.all() else TileKind(int(pairs.any()))] += 1
                if pairs.any():
                    seeing = True
                    keys, rows = keys + kv_tile.size, rows + q_tile.size
                    used[h, kv_tile] = True
            used_rows += [q_tile.size] * seeing
    tiles = sum(bool(used[h, kv_tile].any()) for h in range(HEADS) for kv_tile in of_kv)
    assert counted(analyse_tiles_2d(variant, *blocks, grid_2d), blocks, grid_2d) == Tally(
        LENGTHS[0], *blocks, kinds, keys, rows, int(used.sum()), tiles, sum(used_rows), len(used_rows)
    )


@pytest.mark.parametrize("columns", [12, 8])
def test_windows(columns: int) -> None:
    """Each block of queries has as many tiles of 4 rows as hold what it sees; narrow ones stand side by side."""
    grid_2d, blocks = Grid2D(24, 8, columns, window=True), (64, 4 * columns)
    variant, mask = mask_of(NEIGHBOURHOOD)
    tiles = keys = 0
    for ends in zip(*corners(LENGTHS[0], blocks[0], 8, 24), strict=True):
        kept = np.flatnonzero(mask[0][positions(*ends, 24)].any(0))
        down, across = (np.ptp(place) + 1 if kept.size else 0 for place in (kept // 24, kept % 24))
        tiles += -(-down // 4) * -(-across // columns)
        keys += down * -(-across // columns) * columns
    found = counted(analyse_windows(variant, *blocks, grid_2d), blocks, grid_2d)
    assert (found.kinds[TileKind.PARTIAL], found.live_keys) == (HEADS * tiles, HEADS * keys)
    assert sum(found.kinds.values()) == HEADS * 9 * 5 * -(-24 // columns)
