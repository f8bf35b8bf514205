"""The tiles of decode kernels with wgmma. No schedule sets them: see `HopperDecodeFamily.misfits`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...schedule.plan import Build
from ...schedule.target import TARGETS
from ..decode.facts import LONE_KEYS
from ..family import Settings, Tiles
from ..hopper.panels import WARPGROUP_ROWS, WARPGROUP_WARPS
from ..portable.shared import forward_parts
from ..settings import choice
from ..shared import shared_bytes


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of block_q x block_kv; `warps` warps share the keys of a tile by warpgroups; `stages` are in flight."""

    block_q: int
    block_kv: int
    warps: int
    stages: int


# Two of these, at head dim 128, fill a multiprocessor's shared memory, as those of `decode` do.
_TILE = Tile(WARPGROUP_ROWS, 64, WARPGROUP_WARPS, 3)
_NARROW = replace(_TILE, block_kv=128)  # of head dims up to 64: as many bytes
_LONE = replace(_TILE, block_kv=LONE_KEYS, warps=2 * WARPGROUP_WARPS)  # a warpgroup has half of the keys


def tiles(settings: Settings, build: Build) -> Tiles:
    """The one that there is, with as many stages as fit."""
    tile = _LONE if build.lone else _NARROW if max(build.padded_head_dims) <= 64 else _TILE
    while tile.stages > 1 and shared_bytes(forward_parts(tile, build)) > TARGETS[build.target].shared_bytes:
        tile = replace(tile, stages=tile.stages - 1)
    return Tiles([choice(settings, build, "hopper", tile)], 1)
