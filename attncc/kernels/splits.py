"""Into how many parts the keys are split at a launch (Flash-Decoding, Dao et al. 2023; FlashInfer section 3)."""

from __future__ import annotations

from ..schedule.choice import MAX_SPLITS

_WAVES = 4  # counts that just fill so many waves, or fewer
_TILE_START = 1  # what a block costs before and after its tiles, in tiles
_COMBINE = 6  # the combine's launch and its reading, in tiles
_COMBINE_SPLIT = 1 / 32  # the combine's work for each split


def choose_splits(blocks: int, tiles: int, capacity: int) -> int:
    """The number of splits that finishes first, by a model of waves; 1 is no split.

    `blocks` is the launch's blocks without splitting, `tiles` the K/V tiles of one of them, `capacity` how many blocks
    the GPU holds at once. With s splits, ceil(blocks * s / capacity) waves run ceil(tiles / s) tiles each, and a
    combine kernel follows. Only counts that just fill a few waves can be best; of those, none leaves a split without
    tiles. The answer depends on the arguments alone, so equal calls give equal bits.
    """
    if blocks <= 0 or tiles <= 1:
        return 1
    most = min(tiles, MAX_SPLITS)
    filling = (max(1, min(waves * capacity // blocks, most)) for waves in range(1, _WAVES + 1))
    candidates = {1, *(-(-tiles // -(-tiles // splits)) for splits in filling)}
    return min(sorted(candidates), key=lambda splits: _cost(splits, blocks, tiles, capacity))


def _cost(splits: int, blocks: int, tiles: int, capacity: int) -> float:
    waves = -(-blocks * splits // capacity)
    passes = waves * (-(-tiles // splits) + _TILE_START)
    return passes if splits == 1 else passes + _COMBINE + _COMBINE_SPLIT * splits
