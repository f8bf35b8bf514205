"""The tile of kernels for wide heads on Hopper, made to agree with what a schedule sets."""

from __future__ import annotations

from dataclasses import replace

from ...schedule.plan import Build
from ..family import Settings, Tiles
from ..settings import FixedTile, choice, number
from .shared import WARPS, fits

# One warpgroup's rows: O of more doesn't fit the registers. As many keys, whose P has the size of a panel.
_TILE = FixedTile(64, 64, WARPS, 2)


def tiles(settings: Settings, build: Build) -> Tiles:
    """The one that there is, with as many stages as fit; what a schedule sets is judged afterwards."""
    sizes = {name: number(settings, name, getattr(_TILE, name)) for name in ("block_q", "block_kv", "warps", "stages")}
    tile = replace(_TILE, **sizes)
    if "stages" not in settings and not fits(tile, build):
        tile = replace(tile, stages=1)
    # Thread blocks share out keys, unless a schedule says otherwise.
    return Tiles([choice({"split_kv": "auto", **settings}, build, "hopper_wide", tile)], 1)
