"""The tiles of backward kernels for Hopper: data from compile experiments, and from runs on an H200."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...schedule.choice import TILE_KNOBS, Choice
from ...schedule.plan import Build
from ..family import Asked, Family, Settings, Tiles
from ..guess import guess
from ..instruction_cost import register_pressure
from ..settings import choice, number
from .facts import CONSUMER_WARPS

_SMALL_TILE = 128 * 64  # pairs; of a tile where a mask compares ids


@dataclass(frozen=True, slots=True)
class OwnedTiles:
    """A tile of block_q x block_kv, whose keys eight warps own, with `stages` tiles of Q and dO in flight.

    Those of `low_register` save registers at the cost of time: see `facts`.
    """

    block_q: int
    block_kv: int
    stages: int
    warps: int = CONSUMER_WARPS
    low_register: bool = False


# 64 rows of Q, and for each of two warpgroups that own keys 64 or 128 of them. Of more than 128 columns both
# own the same 64 keys, a gradient each.
_HALVED = OwnedTiles(64, 128, 2), OwnedTiles(64, 128, 2, low_register=True)
_TABLES = (
    ((64, 64), (OwnedTiles(64, 256, 2), *_HALVED)),
    ((128, 128), _HALVED),
    ((256, 256), (OwnedTiles(64, 64, 2),)),
)


def table(head_dim: int, value_head_dim: int) -> tuple[OwnedTiles, ...]:
    """The tiles for these head dims. LookupError above 256."""
    for (key, value), tiles in _TABLES:
        if head_dim <= key and value_head_dim <= value:
            return tiles
    raise LookupError(f"no tiles for head dims {head_dim} and {value_head_dim}")


def tiles(settings: Settings, build: Build) -> Tiles:
    """Tiles of few registers have as much to skip, and are slower: they are for what spills."""
    found = table(*build.padded_head_dims)
    choices = [_choose(settings, build, default) for default in found]
    return Tiles(choices, sum(not default.low_register for default in found))


def begin(family: Family, asked: Asked) -> Iterator[Choice]:
    found = family.tiles(asked.settings, asked.build)
    yield from found.choices[guess(asked, found, register_pressure(asked.variant), smaller=1, most_pairs=_SMALL_TILE) :]


def _choose(settings: Settings, build: Build, default: OwnedTiles) -> Choice:
    block_q, block_kv, warps = (number(settings, name, getattr(default, name)) for name in TILE_KNOBS)
    tile = OwnedTiles(block_q, block_kv, default.stages, warps)
    return choice(settings, build, "hopper", tile, low_register=default.low_register)
