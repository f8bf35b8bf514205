"""The tiles of portable kernels, made to agree with what a schedule sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...schedule.choice import Choice, Value
from ...schedule.plan import FRAGMENT, KEY_PASSES, Build
from ...schedule.target import TARGETS
from ..family import Asked, Family, Settings, Tiles
from ..guess import guess
from ..instruction_cost import Pressure, portable_pressure
from ..settings import FixedTile, choice, loop_set, number
from ..shared import shared_bytes
from .shared import forward_parts, shared_parts
from .tables import default_tile

# One for each `Pressure`. For what spills even so: half the warps (forward), which may have more registers each while
# three blocks share a multiprocessor (attend.cu.j2), or fewer registers at the cost of time (blocks that own keys).
# Then shorter inner loops. Of the pass backward_dq two of those, and fewer registers with the last.
GUESSES, MOST = len(Pressure), len(Pressure) + 2


def tiles(settings: Settings, build: Build) -> Tiles:
    """Warps follow the block that they share, and stages the shared memory that is left."""
    places = range(MOST + (build.pass_name == "backward_dq"))
    return Tiles([_choose(settings, build, place) for place in places], GUESSES)


def begin(family: Family, asked: Asked, *, backward: bool = False) -> Iterator[Choice]:
    found, needed = family.tiles(asked.settings, asked.build), portable_pressure(asked.variant, backward=backward)
    yield from found.choices[guess(asked, found, needed, smaller=Pressure.MUCH) :]


def _choose(settings: Settings, build: Build, place: int) -> Choice:
    default = _default(build, loop_set(settings, build), place)
    sizes = {name: number(settings, name, getattr(default, name)) for name in ("block_q", "block_kv")}
    shared = "block_kv" if build.pass_name in KEY_PASSES else "block_q"
    tile = _shared_by_warps(settings, shared, replace(default, **sizes), default)
    return choice(settings, build, "portable", _fitting(tile, build), low_register=_saves(build, place))


def _saves(build: Build, place: int) -> bool:
    """Whether kernels with these tiles save registers: those of blocks that own keys, where small tiles aren't enough,
    and the last for dQ alone."""
    return place > Pressure.MUCH if build.pass_name in KEY_PASSES else place >= MOST


def _default(build: Build, loop: str, place: int) -> FixedTile:
    """Where blocks own keys, low-register code alone leaves registers: its first tiles are large again."""
    owns_keys, halvings = build.pass_name in KEY_PASSES, max(place - Pressure.MUCH, 0)
    pressure = Pressure.LITTLE if owns_keys and halvings else Pressure(min(place, Pressure.MUCH))
    tile = default_tile(build, loop, pressure)
    if build.pass_name == "backward_dq" or halvings == 0:
        return _shortened(tile, "block_kv", halvings)
    if owns_keys:
        return _shortened(tile, "block_q", halvings - 1)
    return _shortened(_with_half_the_warps(tile), "block_kv", halvings - 1)


def _shortened(tile: FixedTile, block: str, halvings: int) -> FixedTile:
    """With a smaller block of the inner loop, in whole fragments, of two column tiles each."""
    size = getattr(tile, block) >> halvings
    return replace(tile, **{block: max(size - size % FRAGMENT, FRAGMENT)})


def _with_half_the_warps(tile: FixedTile) -> FixedTile:
    return tile if tile.warps % 2 else replace(tile, warps=tile.warps // 2, block_q=tile.block_q // 2)


def _shared_by_warps(settings: Mapping[str, Value], block: str, tile: FixedTile, default: FixedTile) -> FixedTile:
    """A block alone gets warps that share it in whole fragments; warps alone keep their rows of it."""
    if "warps" not in settings:
        size = getattr(tile, block)
        fitting = [count for count in range(1, default.warps + 1) if size % (FRAGMENT * count) == 0]
        return replace(tile, warps=max(fitting, default=default.warps))
    warps = number(settings, "warps", default.warps)
    if block not in settings:
        tile = replace(tile, **{block: warps * (getattr(default, block) // default.warps)})
    return replace(tile, warps=warps)


def _fitting(tile: FixedTile, build: Build) -> FixedTile:
    def needed(tile: FixedTile) -> int:
        if build.kv_dtype is not None:
            return shared_bytes(forward_parts(tile, build))
        return shared_bytes(shared_parts(build.pass_name, tile, *build.padded_head_dims, build.element_bytes))

    while tile.stages > 1 and needed(tile) > TARGETS[build.target].shared_bytes:
        tile = replace(tile, stages=tile.stages - 1)
    return tile
