"""Whether tiles of keys should be windows of a 2-D grid: they begin where what a block of queries looks at does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...evaluate import Array, evaluate
from ...ir import Variant, show
from ..grid_2d import Grid2D
from ..mask.key_sets import LaneKeys, keep_masks
from ..mask.tiles import analyse_tiles_2d, analyse_windows
from ..rules import TileRules
from .fixed import corners, live_share, sample_length, sampled

WINDOW_ROWS = 4  # of the grid, that a tile has
_GRAIN = 4  # a tile's columns are a multiple of this many, so that its keys are one of 16
_WIDEST = 32  # columns, whose keys are as many as a lane has bits for
_ROWS = 64  # of queries that are counted: those of a warpgroup
_WORTH = 0.9  # what windows must leave of the pairs that fixed tiles compute


def find_window(variant: Variant, grid_2d: Grid2D) -> Grid2D | None:
    """The grid with tiles of keys as wide as what tiles of queries look at; None if fixed tiles are about as good.

    It is counted on a sample as for fixed tiles. Score lines and tests of pairs ask for keys that stand like fragments.
    """
    if grid_2d.q_columns == 1 or variant.scores:
        return None
    trial = replace(grid_2d, kv_columns=_GRAIN, window=True)
    rules = analyse_windows(variant, _ROWS, WINDOW_ROWS * _GRAIN, trial)
    if rules is None or rules.columns is None:
        return None
    _, _, left, right = _bounds(rules, grid_2d, _ROWS)
    columns = -(-int((right - left).max()) // _GRAIN) * _GRAIN
    found = replace(trial, kv_columns=columns)
    fixed = live_share(analyse_tiles_2d(variant, _ROWS, 64, grid_2d), grid_2d, _ROWS, 64)
    fits = 0 < columns <= _WIDEST and 2 * columns <= grid_2d.width
    pays = fits and window_share(rules, found, _ROWS) < _WORTH * fixed
    return found if pays and refusal(variant, found) is None else None


def window_share(rules: TileRules, grid_2d: Grid2D, rows: int) -> float:
    """The share of pairs that windows hold for so many queries, on a sample as for fixed tiles."""
    begin, end, left, right = _bounds(rules, grid_2d, rows)
    across = np.maximum(-(-(right - left) // grid_2d.kv_columns), 1)
    tiles = -(-np.maximum(end - begin, 0) // (grid_2d.width * WINDOW_ROWS)) * across
    return float(tiles.mean()) * WINDOW_ROWS * grid_2d.kv_columns / sample_length(grid_2d.width)


def _bounds(rules: TileRules, grid_2d: Grid2D, rows: int) -> list[Array]:
    """Those of the rows of each window, as positions, and of its columns."""
    assert rules.columns is not None
    length = sample_length(grid_2d.width)
    first, last = corners(length, rows, grid_2d.q_columns, grid_2d.width)
    bounds, seen = (rules.kv_begin, rules.kv_end, *rules.columns), sampled(length, first, last)
    return [np.broadcast_to(evaluate(bound, seen), first.shape) for bound in bounds]


def refusal(variant: Variant, grid_2d: Grid2D) -> str | None:
    """Why tiles of keys can't be windows of this 2-D grid; None where they can. Their kernel knows what is kept as bits
    of whole rows and columns: it has no place for score lines, nor for a test of each pair."""
    if grid_2d.kv_columns % _GRAIN or grid_2d.kv_columns > min(_WIDEST, grid_2d.width):
        return f"their columns must be a multiple of {_GRAIN} up to {_WIDEST}, and no more than the grid has"
    if variant.scores:
        return "their kernel has no place for `score` lines"
    masks = keep_masks(variant, WINDOW_ROWS * grid_2d.kv_columns, LaneKeys.of(grid_2d))
    tested = [show(mask.each) for mask in masks if mask.each is not None]
    return f"`{tested[0]}` must be tested for each pair: it isn't a range of rows, or of columns" if tested else None
