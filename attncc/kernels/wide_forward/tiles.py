"""The tiles of kernels for wide heads, made to agree with what a schedule sets. Only the chosen ones were timed."""

from __future__ import annotations

from dataclasses import replace

from ...schedule.plan import Build
from ..family import Settings, Tiles
from ..settings import FixedTile, choice, number
from .shared import fits

# Many rows: as many as registers hold of O, so that each key loaded serves many. With one stage V comes under
# S = Q K^T, and the next K under O += P V.
_FORWARD = (
    FixedTile(64, 64, 8, 2),
    FixedTile(64, 64, 8, 1),
    FixedTile(64, 32, 8, 1),
    FixedTile(32, 64, 8, 1),
    FixedTile(32, 32, 4, 1),
    FixedTile(16, 32, 4, 1),
)
# Few rows: the memory must be kept busy.
_DECODE = (FixedTile(16, 64, 4, 2), FixedTile(16, 64, 4, 1), FixedTile(16, 32, 4, 2), FixedTile(16, 32, 4, 1))
_TABLES = {"forward": _FORWARD, "decode": _DECODE}


def tiles(settings: Settings, build: Build) -> Tiles:
    """Those that fit the target's shared memory; what a schedule sets is taken as it is, and judged afterwards."""
    names = ("block_q", "block_kv", "warps", "stages")
    asked = [
        replace(tile, **{name: number(settings, name, getattr(tile, name)) for name in names})
        for tile in _TABLES[build.pass_name]
    ]
    found = [tile for tile in dict.fromkeys(asked) if fits(tile, build)] or asked[-1:]
    # Thread blocks share out keys in either pass, unless a schedule says otherwise.
    shared_out = {"split_kv": "auto", **settings}
    return Tiles([choice(shared_out, build, "wide", tile) for tile in found], len(found))
