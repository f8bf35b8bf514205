"""The tiles of decode kernels with wgmma. No schedule sets them: see `HopperDecodeFamily.misfits`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...schedule.plan import Build
from ...schedule.target import TARGETS
from ..family import Settings, Tiles
from ..hopper.panels import WARPGROUP_ROWS, WARPGROUP_WARPS
from ..portable.shared import forward_parts
from ..settings import choice
from ..shared import shared_bytes


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of block_q x block_kv; `warps` warps work on tiles, a warpgroup on one each; `stages` are in flight."""

    block_q: int
    block_kv: int
    warps: int
    stages: int


# One thread block a multiprocessor, whose shared memory it fills at head dim 128.
_TILE = Tile(WARPGROUP_ROWS, 64, 2 * WARPGROUP_WARPS, 6)
_NARROW = replace(_TILE, block_kv=128)  # of head dims up to 64: as many bytes


def tiles(settings: Settings, build: Build) -> Tiles:
    """The one that there is, with as many stages as fit."""
    tile = _NARROW if max(build.padded_head_dims) <= 64 else _TILE
    warpgroups = tile.warps // WARPGROUP_WARPS
    while tile.stages > warpgroups and shared_bytes(forward_parts(tile, build)) > TARGETS[build.target].shared_bytes:
        tile = replace(tile, stages=tile.stages - warpgroups)
    return Tiles([replace(choice(settings, build, "hopper", tile), tiles_at_once=warpgroups)], 1)
