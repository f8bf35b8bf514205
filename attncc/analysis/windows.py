"""Whether tiles of keys should be windows of a canvas: they begin where what a block of queries looks at does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..evaluate import evaluate
from ..ir import Variant
from .canvas import Canvas
from .key_sets import LaneKeys, keep_masks
from .patches import corners, live_share, sample_length, sampled
from .tiles import analyse_patches, analyse_windows

WINDOW_ROWS = 4  # of the canvas, that a tile has
_GRAIN = 4  # a tile's columns are a multiple of this many, so that its keys are one of 16
_WIDEST = 32  # columns, whose keys are as many as a lane has bits for
_ROWS = 64  # of queries that are counted: those of a warpgroup
_WORTH = 0.9  # what windows must leave of the pairs that patches compute


def find_window(variant: Variant, canvas: Canvas) -> Canvas | None:
    """The canvas with tiles of keys as wide as what patches of queries look at; None if patches are about as good.

    It is counted on a sample as for patches. Score lines and tests of pairs ask for keys that stand like fragments.
    """
    if canvas.q_columns == 1 or variant.scores:
        return None
    trial = replace(canvas, kv_columns=_GRAIN, window=True)
    rules = analyse_windows(variant, _ROWS, WINDOW_ROWS * _GRAIN, trial)
    if rules is None or rules.columns is None:
        return None
    length = sample_length(canvas.width)
    first, last = corners(length, _ROWS, canvas.q_columns, canvas.width)
    seen = sampled(length, first, last)
    bounds = (rules.kv_begin, rules.kv_end, *rules.columns)
    begin, end, left, right = (np.broadcast_to(evaluate(bound, seen), first.shape) for bound in bounds)
    columns = -(-int((right - left).max()) // _GRAIN) * _GRAIN
    found = replace(trial, kv_columns=columns)
    keys = -(-(end - begin) // (canvas.width * WINDOW_ROWS)) * WINDOW_ROWS * columns
    patches = live_share(analyse_patches(variant, _ROWS, 64, canvas), canvas, _ROWS, 64)
    pays = 0 < columns <= _WIDEST and 2 * columns <= canvas.width and keys.mean() < _WORTH * patches * length
    return found if pays and _all_sets(variant, found) else None


def _all_sets(variant: Variant, canvas: Canvas) -> bool:
    """Whether no pair has to be tested by itself."""
    masks = keep_masks(variant, WINDOW_ROWS * canvas.kv_columns, LaneKeys.of(canvas))
    return all(mask.each is None for mask in masks)
