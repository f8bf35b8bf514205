"""Where among its family's tiles a kernel begins: a guess, which ptxas may prove wrong."""

from __future__ import annotations

from ..analysis.mask.tiles import analyse_tiles_2d
from ..analysis.tiles_2d.fixed import live_share
from ..schedule.choice import Choice
from .family import Asked, Tiles
from .instruction_cost import tests_ids
from .mask_alignment import key_blocks, suits

TILE_COST = 16  # of a tile of keys whatever its size, in keys; roughly


def guess(asked: Asked, tiles: Tiles, needed: int, *, smaller: int, most_pairs: int | None = None) -> int:
    """The number of the first tiles to try: those that leave what is `needed`.

    Where single tiles are tested, at least `smaller`: smaller tiles find more to skip. `most_pairs`: of a tile where
    the mask compares ids, if that matters: ids that aren't sorted, so that each tile is asked, leave few tiles out,
    and large ones ask less. In 2-D tiles those that leave the least work.
    """
    last = tiles.guesses - 1
    first = min(needed, last)
    plan = asked.plan(tiles.choices[first])
    tests_tiles = plan.tests_tiles
    ids = most_pairs is not None and tests_ids(asked.variant) and not key_blocks(asked.variant)
    if ids and asked.grid_2d is None and not plan.rules.bounds_read:
        return first
    first = min(max(first, smaller), last) if tests_tiles else first
    below = range(first, last + 1)
    if asked.grid_2d is not None:
        return min(below, key=lambda number: _work_in_2d(asked, tiles.choices[number]))
    if tests_tiles:
        first = next((number for number in below if suits(asked.variant, tiles.choices[number].block_kv)), first)
    if not ids or most_pairs is None:
        return first
    small = (number for number in range(first, last + 1) if _pairs(tiles.choices[number]) <= most_pairs)
    return next(small, first)


def _pairs(choice: Choice) -> int:
    return choice.block_q * choice.block_kv


def _work_in_2d(asked: Asked, choice: Choice) -> float:
    plan, tiles_2d = asked.plan(choice), asked.grid_2d
    sizes = plan.block_q, plan.block_kv
    assert tiles_2d is not None
    rules = plan.rules if plan.grid_2d is tiles_2d else analyse_tiles_2d(asked.variant, *sizes, tiles_2d)
    share = live_share(rules, tiles_2d, *sizes)
    return share * (plan.block_kv + TILE_COST) / plan.block_kv
