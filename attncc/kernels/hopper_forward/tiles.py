"""The tiles of forward kernels for Hopper: data from compile experiments, and from runs on an H200."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...analysis.tiles_2d.windows import WINDOW_ROWS
from ...ir import Variant
from ...problem import Problem
from ...schedule.choice import TILE_KNOBS, Choice
from ...schedule.plan import FRAGMENT, Build
from ...schedule.target import TARGETS
from ..family import Asked, Family, Settings, Tiles
from ..guess import guess
from ..hopper.panels import PANEL_BYTES
from ..instruction_cost import is_plain, key_line_bits, register_pressure, tests_ids
from ..live_tiles import reach
from ..mask_alignment import suits
from ..settings import choice, number
from .splits import SPLIT_ROWS

PIPELINE_BYTES = 1024  # of barriers and tile info, at most
_SMALL_TILE = 128 * 64  # pairs; of a tile where a mask compares ids
# Of keys: where a block's ends, in which products and exponentials don't overlap, weigh more than its tiles. With 8
# bits on an H200, the ends of 192 rows cost each row as much as 560 keys, those of 256 rows 390, whose tiles take 7 %
# longer: 2,600 keys make that equal without a mask. The limit is the power of two below; between 2,048 and 4,096 keys
# nothing was timed. Figures: docs/notebook/2026-11-e4m3.md.
SHORT_LENGTHS = (1, 2048)


@dataclass(frozen=True, slots=True)
class HopperTiles:
    """A tile of block_q x block_kv, worked on by a warp for each 16 rows, with `stages` K/V tiles in flight."""

    block_q: int
    block_kv: int
    stages: int

    @property
    def warps(self) -> int:
        return self.block_q // FRAGMENT

    def shared_bytes(self, head_dim: int, value_head_dim: int, element_bytes: int) -> int:
        """What a block takes of shared memory, at most, in whole panels. 8-bit values lie there transposed too."""
        row, value_row = (-(-size * element_bytes // PANEL_BYTES) * PANEL_BYTES for size in (head_dim, value_head_dim))
        transposed = value_head_dim * self.block_kv if element_bytes == 1 else 0
        stage = self.block_kv * (row + value_row) + transposed
        return self.block_q * row + self.stages * stage + PIPELINE_BYTES


def _tiles(*sizes: tuple[int, int, int]) -> tuple[HopperTiles, ...]:
    return tuple(HopperTiles(*item) for item in sizes)


# Each row serves head dims up to its own. Many keys a tile cost few instructions a key, many rows few bytes.
_TABLES = (
    ((48, 48), _tiles((256, 96, 4), (128, 128, 4), (128, 64, 4), (128, 32, 4))),
    ((64, 64), _tiles((256, 64, 4), (192, 96, 4), (128, 64, 4), (128, 32, 4))),
    ((80, 80), _tiles((192, 96, 3), (128, 96, 3), (128, 64, 4), (128, 32, 4))),
    ((96, 96), _tiles((192, 96, 2), (128, 96, 3), (128, 64, 4), (128, 32, 4))),
    ((128, 128), _tiles((128, 128, 2), (128, 96, 2), (128, 64, 4), (128, 32, 4))),
    ((192, 128), _tiles((128, 128, 2), (128, 96, 2), (128, 64, 4), (64, 32, 4))),
    ((192, 192), _tiles((128, 112, 2), (128, 64, 3), (128, 32, 4), (64, 16, 4))),
    ((256, 256), _tiles((128, 64, 2), (128, 48, 2), (128, 32, 4), (64, 16, 4))),
)

# 8-bit operands: products take half the time, exponentials as long. V passes through the hands of warps that transpose
# it, which takes as long as to load it: stages for both, where they fit.
_TABLES_8_BIT = (
    ((64, 64), _tiles((192, 128, 4), (128, 128, 4), (128, 64, 4), (128, 32, 4))),
    ((128, 128), _tiles((192, 96, 4), (128, 160, 2), (128, 128, 4), (128, 64, 4), (128, 32, 4))),
    ((192, 192), _tiles((128, 128, 2), (128, 96, 2), (128, 64, 3), (128, 32, 4))),
    ((256, 256), _tiles((128, 96, 2), (128, 64, 3), (128, 32, 4), (64, 32, 4))),
)


def table(head_dim: int, value_head_dim: int, element_bytes: int = 2) -> tuple[HopperTiles, ...]:
    """The tiles for these head dims. LookupError above 256."""
    tables = _TABLES_8_BIT if element_bytes == 1 else _TABLES
    for (key, value), tiles in tables:
        if head_dim <= key and value_head_dim <= value:
            return tiles
    raise LookupError(f"no tiles for head dims {head_dim} and {value_head_dim}")


def tiles(settings: Settings, build: Build) -> Tiles:
    """Each warp has 16 rows, so block_q and warps follow from each other; stages from shared memory."""
    found = table(*build.padded_head_dims, build.element_bytes)
    return Tiles([_choose(settings, build, default) for default in found], len(found))


# Of kernels that split keys, before those of the table with few rows: they go over many keys, of which large tiles take
# fewer instructions each. Causal, 256 x 32k and 512 x 16k take 11 to 13 % less time than with 128 x 64, and
# 60 x 8k 3 % more.
_OF_SPLITS = {(64, 64): HopperTiles(128, 128, 3)}


def begin(family: Family, asked: Asked) -> Iterator[Choice]:
    found = _begin(family, asked)
    if not asked.build.split:
        yield from found
        return
    first = _OF_SPLITS.get(asked.build.padded_head_dims)
    if first is not None:
        yield _choose(asked.settings, asked.build, first)
    yield from (item for item in found if item.block_q <= SPLIT_ROWS)


def _begin(family: Family, asked: Asked) -> Iterator[Choice]:
    found = family.tiles(asked.settings, asked.build)
    # Documents begin anywhere, and a block of queries meets few tiles of them, so that what tiles leave out counts, and
    # how many are in flight.
    # What is read ahead at the keys of a tile leaves two warpgroups registers enough for the largest tile.
    lines = key_line_bits(asked.variant)
    few = lines and four_warpgroups(*asked.build.padded_head_dims, asked.build.element_bytes) is None
    pressure = 0 if few else register_pressure(asked.variant)
    first = guess(asked, found, pressure, smaller=1, most_pairs=_SMALL_TILE)
    if lines <= {0, 16}:
        yield from _of_four_warpgroups(asked, found)
    elif lines:
        yield from _for_key_lines(asked)
    yield from _for_low_pressure(asked)
    yield from found.choices[first:]


def _of_four_warpgroups(asked: Asked, found: Tiles) -> Iterator[Choice]:
    """What goes before the first guess where single tiles aren't tested and O leaves room for four warpgroups.

    These hold one set of scores each, so that even long score lines have registers enough, and run beside the products
    of three others (docs/notebook/2026-11-tune.md).
    """
    build, variant = asked.build, asked.variant
    has_them = register_pressure(variant) == 0 and not overlaps(found.choices[0].block_q)
    tiles = None if has_them else four_warpgroups(*build.padded_head_dims, build.element_bytes)
    if tiles is None or asked.grid_2d is not None or any(name in asked.settings for name in TILE_KNOBS):
        return
    choice = _choose(asked.settings, build, tiles)
    if register_pressure(variant) <= 1 and not tests_ids(variant) and not asked.plan(choice).tests_tiles:
        yield choice


def _for_key_lines(asked: Asked) -> Iterator[Choice]:
    """What goes first where rows have lines of 8 or 32 bits: four lanes read 64 keys of 8 bits at once, and those of 32
    bits take as many registers as the scores, which leaves room for two warpgroups.

    docs/notebook/2026-11-score-lines.md, "What is read at every key".
    """
    build = asked.build
    dims = build.padded_head_dims
    if build.element_bytes == 2 and max(dims) <= 128 and not any(name in asked.settings for name in TILE_KNOBS):
        yield _choose(asked.settings, build, HopperTiles(128, 128, 3 if max(dims) <= 96 else 2))


def _for_low_pressure(asked: Asked) -> Iterator[Choice]:
    """What goes before the first guess for variants of low register pressure, under a mask or plain. Rows over a shared
    prefix are few: large blocks would leave them to few multiprocessors."""
    build, variant = asked.build, asked.variant
    low_pressure = register_pressure(variant) == 0 and (variant.keeps or is_plain(variant)) and not build.prefixed
    if not low_pressure or any(name in asked.settings for name in TILE_KNOBS):
        return
    keys = 0 if asked.window is None else WINDOW_ROWS * asked.window.kv_columns
    dims = *build.padded_head_dims, build.element_bytes
    own = (short_tiles(asked) if build.lengths == SHORT_LENGTHS else None), _tiles_of_masks_8_bit(asked)
    for tiles in filter(None, (*own, window_tiles(keys, *dims), low_pressure_tiles(*dims))):
        found = _choose(asked.settings, build, tiles)
        if asked.grid_2d is not None or suits(asked.variant, found.block_kv) or not asked.plan(found).tests_tiles:
            yield found


def _choose(settings: Settings, build: Build, default: HopperTiles) -> Choice:
    block_q = number(settings, "block_q", FRAGMENT * number(settings, "warps", default.warps))
    tile = HopperTiles(block_q, number(settings, "block_kv", default.block_kv), default.stages)
    limit = TARGETS[build.target].shared_bytes
    while tile.stages > 1 and tile.shared_bytes(*build.padded_head_dims, build.element_bytes) > limit:
        tile = replace(tile, stages=tile.stages - 1)
    found = choice(settings, build, "hopper", tile, overlap=overlaps(block_q))
    return replace(found, warps=number(settings, "warps", found.warps))


def low_pressure_tiles(head_dim: int, value_head_dim: int, element_bytes: int = 2) -> HopperTiles | None:
    """What is faster than the table's tiles for variants of low register pressure, with a mask or with nothing else.

    A third warpgroup hides what the others wait for: tile info, masks, the ends of blocks, other thread blocks. It
    leaves such variants just enough registers. And smaller tiles hold less that is masked.
    """
    fits = element_bytes == 2 and 96 < head_dim <= 128 and value_head_dim <= 128
    return HopperTiles(192, 64, 5) if fits else None


def _tiles_of_masks_8_bit(asked: Asked) -> HopperTiles | None:
    """O and P of 8 bits leave masks registers for more keys, each of which then takes fewer instructions. At head dim
    64, where blocks have more rows, windows lose more to what is masked of larger tiles."""
    build, dims = asked.build, asked.build.padded_head_dims
    if build.element_bytes != 1 or not _only_masks(asked.variant):
        return None
    if max(dims) > 192:
        return HopperTiles(128, 128, 2)
    return HopperTiles(192, 160, 4) if dims == (64, 64) and _looks_far(asked, HopperTiles(192, 160, 4)) else None


def four_warpgroups(head_dim: int, value_head_dim: int, element_bytes: int = 2) -> HopperTiles | None:
    """The tile of 256 rows that leaves each warpgroup registers for O, S and P; None for head dims without one."""
    return HopperTiles(256, 64, 5) if element_bytes == 2 and max(head_dim, value_head_dim) <= 96 else None


def short_tiles(asked: Asked) -> HopperTiles | None:
    """What is faster where calls have SHORT_LENGTHS, if anything is: four warpgroups, whose small tiles make ends
    short. They leave fewer rows of the last block empty, too. Only for masks that let some row look at all keys.
    """
    build, dims = asked.build, asked.build.padded_head_dims
    if build.pass_name != "forward" or build.element_bytes != 1 or dims != (64, 64) or build.prefixed:
        return None
    tiles = HopperTiles(256, 64, 4)
    return tiles if _only_masks(asked.variant) and _looks_far(asked, tiles) else None


def _looks_far(asked: Asked, tiles: HopperTiles) -> bool:
    """Whether some row looks at all keys of more than short calls, and tiles aren't tested."""
    plan = asked.plan(_choose(asked.settings, asked.build, tiles))
    keys = 2 * SHORT_LENGTHS[1]
    return not plan.tests_tiles and reach(plan, Problem(1, 1, 1, keys, keys, *asked.build.padded_head_dims)) == keys


def _only_masks(variant: Variant) -> bool:
    """Whether next to nothing is computed for each pair but what a mask keeps, without ids."""
    return register_pressure(variant) == 0 and not variant.scores and not tests_ids(variant)


def window_tiles(block_kv: int, head_dim: int, value_head_dim: int, element_bytes: int = 2) -> HopperTiles | None:
    """The same where tiles of keys are windows of so many; None for tiles of which two stages don't fit."""
    tiles = low_pressure_tiles(head_dim, value_head_dim, element_bytes)
    if tiles is None or block_kv == 0:
        return None
    found = (replace(tiles, block_kv=block_kv, stages=stages) for stages in range(tiles.stages, 1, -1))
    limit = TARGETS["sm_90a"].shared_bytes
    return next((item for item in found if item.shared_bytes(head_dim, value_head_dim, element_bytes) <= limit), None)


def overlaps(block_q: int) -> bool:
    """Whether Q K^T of a tile runs beside P V of the one before: both sets of scores take registers, which four
    warpgroups don't have. They hide the exponentials of one behind the products of another."""
    return block_q <= 192
