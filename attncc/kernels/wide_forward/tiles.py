"""The tiles of kernels for wide heads, made to agree with what a schedule sets. No GPU has timed them yet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...schedule.plan import Build
from ..family import Settings, Tiles
from ..settings import choice, number
from .shared import fits


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of block_q x block_kv, worked on by `warps` warps, with `stages` tiles of keys in flight."""

    block_q: int
    block_kv: int
    warps: int
    stages: int


# Many rows: as many as registers hold of O, so that each key loaded serves many. With one stage V comes under
# S = Q K^T, and the next K under O += P V.
_FORWARD = (
    Tile(64, 64, 8, 2),
    Tile(64, 64, 8, 1),
    Tile(64, 32, 8, 1),
    Tile(32, 64, 8, 1),
    Tile(32, 32, 4, 1),
    Tile(16, 32, 4, 1),
)
# Few rows: the memory must be kept busy.
_DECODE = (Tile(16, 64, 4, 2), Tile(16, 64, 4, 1), Tile(16, 32, 4, 2), Tile(16, 32, 4, 1))
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
