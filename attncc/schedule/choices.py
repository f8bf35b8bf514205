"""What runs where a schedule is silent: the default tiles of the target, made to agree with what is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .defaults import Tiles, default_tiles
from .hopper_tiles import HopperTiles, hopper_ladder, overlaps
from .knobs import Value
from .plan import DTYPE_BYTES, KEY_PASSES
from .shared import shared_bytes, shared_parts
from .target import TARGETS
from .weight import Room

FRAGMENT_ROWS = 16  # of one mma.sync
OWNER_WARPS = 8  # hopper, backward
# Of the portable ladder of tiles: one for each `Room`. For what spills even so: half the warps (forward), which may
# have more registers each while three blocks share a multiprocessor (attend.cu.j2), or thrift (blocks that own keys);
# then shorter inner loops. Of the pass backward_dq two of those, and thrift with the last.
PORTABLE_GUESSES, PORTABLE_RUNGS = len(Room), len(Room) + 2


@dataclass(frozen=True, slots=True)
class Build:
    """What a kernel is asked for, apart from its variant and its schedule."""

    pass_name: str
    target: str
    dtype: str
    head_dim: int
    value_head_dim: int

    @property
    def element_bytes(self) -> int:
        """Of the kernels' tiles; fp64, which the CPU executor alone runs, is walked in tiles of fp32."""
        return min(DTYPE_BYTES[self.dtype], 4)

    @property
    def padded_head_dims(self) -> tuple[int, int]:
        def padded(head_dim: int) -> int:
            return -(-head_dim // FRAGMENT_ROWS) * FRAGMENT_ROWS

        return padded(self.head_dim), padded(self.value_head_dim)


@dataclass(frozen=True, slots=True)
class Choice:
    """A value for each knob; `split_kv` None is decided at each launch. `overlap` follows from the tile, `thrifty` from
    the rung."""

    family: str
    loop: str
    block_q: int
    block_kv: int
    warps: int
    stages: int
    split_kv: int | None
    skip: str
    overlap: bool
    thrifty: bool = False


def loop_of(pass_name: str) -> str:
    """The loop order of a pass where its schedule sets none; the backward passes have no other."""
    return "kv_outer" if pass_name in KEY_PASSES else "q_outer"


def rungs(family: str, build: Build) -> int:
    """How many the family's ladder has. LookupError for a head dim above 256."""
    if family == "hopper":
        return len(_ladder(build))
    return PORTABLE_RUNGS + (build.pass_name == "backward_dq")


def guesses(family: str, build: Build) -> int:
    """How many of them, from the first, may be where a kernel begins. LookupError for a head dim above 256.

    Thrifty tiles have as much to skip, and are slower: they are for what spills.
    """
    return sum(not tiles.thrifty for tiles in _ladder(build)) if family == "hopper" else PORTABLE_GUESSES


def _ladder(build: Build) -> tuple[HopperTiles, ...]:
    return hopper_ladder(*build.padded_head_dims, build.element_bytes, backward=build.pass_name in KEY_PASSES)


def choose(settings: Mapping[str, Value], build: Build, family: str, rung: int) -> Choice:
    """Settings win. Warps follow the block that they share, and stages the shared memory that is left.

    `rung`: of the family's ladder, below `rungs`; 0 for the fastest tiles, each other one leaves more registers.
    """
    loop = str(settings.get("loop", loop_of(build.pass_name)))
    if family == "hopper":
        chosen = _chosen(settings, build, family, loop, _hopper_tiles(settings, build, rung))
        return replace(chosen, thrifty=_ladder(build)[rung].thrifty)
    default = _portable_tiles(build, loop, rung)
    sizes = {name: _int(settings, name, getattr(default, name)) for name in ("block_q", "block_kv")}
    shared = "block_kv" if build.pass_name in KEY_PASSES else "block_q"
    tiles = _shared_by_warps(settings, shared, replace(default, **sizes), default)
    chosen = _chosen(settings, build, family, loop, _fitting(tiles, build))
    return replace(chosen, thrifty=_saves(build, rung))


def _saves(build: Build, rung: int) -> bool:
    """Whether kernels of a portable rung are thrifty: those of blocks that own keys, where much room isn't enough, and
    the last for dQ alone."""
    return rung > Room.MUCH if build.pass_name in KEY_PASSES else rung >= PORTABLE_RUNGS


def _portable_tiles(build: Build, loop: str, rung: int) -> Tiles:
    """Thrift itself leaves registers where blocks own keys: its first tiles are large again."""
    owns_keys, halvings = build.pass_name in KEY_PASSES, max(rung - Room.MUCH, 0)
    room = Room.LITTLE if owns_keys and halvings else Room(min(rung, Room.MUCH))
    tiles = default_tiles(build.pass_name, loop, build.dtype, *build.padded_head_dims, build.target, room=room)
    if build.pass_name == "backward_dq" or halvings == 0:
        return _shortened(tiles, "block_kv", halvings)
    if owns_keys:
        return _shortened(tiles, "block_q", halvings - 1)
    return _shortened(_with_half_the_warps(tiles), "block_kv", halvings - 1)


def _shortened(tiles: Tiles, block: str, halvings: int) -> Tiles:
    """With a smaller block of the inner loop, in whole fragments, of two column tiles each."""
    size = getattr(tiles, block) >> halvings
    return replace(tiles, **{block: max(size - size % FRAGMENT_ROWS, FRAGMENT_ROWS)})


def _with_half_the_warps(tiles: Tiles) -> Tiles:
    return tiles if tiles.warps % 2 else replace(tiles, warps=tiles.warps // 2, block_q=tiles.block_q // 2)


def _chosen(settings: Mapping[str, Value], build: Build, family: str, loop: str, tiles: Tiles) -> Choice:
    return Choice(
        family,
        loop,
        tiles.block_q,
        tiles.block_kv,
        tiles.warps,
        _int(settings, "stages", tiles.stages),
        _splits(settings.get("split_kv"), loop, build.pass_name),
        str(settings.get("skip", "auto")),
        family != "hopper" or overlaps(tiles.block_q),
    )


def _hopper_tiles(settings: Mapping[str, Value], build: Build, rung: int) -> Tiles:
    """Each warp has 16 rows, so block_q and warps follow from each other. Backward, eight warps own the keys."""
    default = _ladder(build)[rung]
    if build.pass_name in KEY_PASSES:
        sizes = {name: _int(settings, name, getattr(default, name)) for name in ("block_q", "block_kv")}
        return Tiles(**sizes, warps=_int(settings, "warps", OWNER_WARPS), stages=default.stages)
    block_q = _int(settings, "block_q", FRAGMENT_ROWS * _int(settings, "warps", default.block_q // FRAGMENT_ROWS))
    tiles = HopperTiles(block_q, _int(settings, "block_kv", default.block_kv), default.stages)
    limit = TARGETS[build.target].shared_bytes
    while tiles.stages > 1 and tiles.shared_bytes(*build.padded_head_dims, build.element_bytes) > limit:
        tiles = replace(tiles, stages=tiles.stages - 1)
    return Tiles(block_q, tiles.block_kv, _int(settings, "warps", block_q // FRAGMENT_ROWS), tiles.stages)


def _int(settings: Mapping[str, Value], name: str, default: int) -> int:
    return int(settings.get(name, default))


def _shared_by_warps(settings: Mapping[str, Value], block: str, tiles: Tiles, default: Tiles) -> Tiles:
    """A block alone gets warps that share it in whole fragments; warps alone keep their rows of it."""
    if "warps" not in settings:
        size = getattr(tiles, block)
        fitting = [count for count in range(1, default.warps + 1) if size % (FRAGMENT_ROWS * count) == 0]
        return replace(tiles, warps=max(fitting, default=default.warps))
    warps = _int(settings, "warps", default.warps)
    if block not in settings:
        tiles = replace(tiles, **{block: warps * (getattr(default, block) // default.warps)})
    return replace(tiles, warps=warps)


def _fitting(tiles: Tiles, build: Build) -> Tiles:
    def needed(tiles: Tiles) -> int:
        return shared_bytes(shared_parts(build.pass_name, tiles, *build.padded_head_dims, build.element_bytes))

    while tiles.stages > 1 and needed(tiles) > TARGETS[build.target].shared_bytes:
        tiles = replace(tiles, stages=tiles.stages - 1)
    return tiles


def _splits(value: Value | None, loop: str, pass_name: str) -> int | None:
    """kv_outer never splits by itself, and only the decode pass splits unasked."""
    if isinstance(value, int):
        return value
    splits = loop == "q_outer" and (value == "auto" or pass_name == "decode")
    return None if splits else 1
