"""The tiles of decode kernels with wgmma. No schedule sets them: see `HopperDecodeFamily.misfits`."""

from __future__ import annotations

from dataclasses import replace

from ...schedule.plan import Build
from ...schedule.target import TARGETS
from ..decode.facts import ONE_BLOCK_KEYS
from ..family import Settings, Tiles
from ..hopper.panels import WARPGROUP_ROWS, WARPGROUP_WARPS
from ..portable.shared import forward_parts
from ..settings import FixedTile, choice
from ..shared import shared_bytes

# Two of these, at head dim 128, fill a multiprocessor's shared memory, as those of `decode` do.
_TILE = FixedTile(WARPGROUP_ROWS, 64, WARPGROUP_WARPS, 3)
_NARROW = replace(_TILE, block_kv=128)  # of head dims up to 64: as many bytes
_ONE_BLOCK = replace(_TILE, block_kv=ONE_BLOCK_KEYS, warps=2 * WARPGROUP_WARPS)  # a warpgroup has half of the keys


def tiles(settings: Settings, build: Build) -> Tiles:
    """The one that there is, with as many stages as fit."""
    tile = _ONE_BLOCK if build.one_block else _NARROW if max(build.padded_head_dims) <= 64 else _TILE
    while tile.stages > 1 and shared_bytes(forward_parts(tile, build)) > TARGETS[build.target].shared_bytes:
        tile = replace(tile, stages=tile.stages - 1)
    return Tiles([choice(settings, build, "hopper", tile)], 1)
