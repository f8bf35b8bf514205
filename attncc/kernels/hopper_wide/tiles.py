"""The tile of kernels for wide heads on Hopper, made to agree with what a schedule sets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...schedule.plan import Build
from ..family import Settings, Tiles
from ..settings import choice, number
from .shared import WARPS, fits


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of block_q x block_kv, worked on by `warps` warps, of which one loads, with `stages` tiles in flight."""

    block_q: int
    block_kv: int
    warps: int
    stages: int


# One warpgroup's rows: O of more doesn't fit the registers. As many keys, whose P has the size of a panel.
_TILE = Tile(64, 64, WARPS, 2)


def tiles(settings: Settings, build: Build) -> Tiles:
    """The one that there is, with as many stages as fit; what a schedule sets is judged afterwards."""
    sizes = {name: number(settings, name, getattr(_TILE, name)) for name in ("block_q", "block_kv", "warps", "stages")}
    tile = replace(_TILE, **sizes)
    if "stages" not in settings and not fits(tile, build):
        tile = replace(tile, stages=1)
    # Thread blocks share out keys, unless a schedule says otherwise.
    return Tiles([choice({"split_kv": "auto", **settings}, build, "hopper_wide", tile)], 1)
