"""Whether 2-D tiles serve a mask better than 1-D tiles, and on which grid. Each side's tiles begin at fixed places."""

from __future__ import annotations

import numpy as np

from ...evaluate import Array, Environment, evaluate
from ...ir import OFFSET_SYMBOL, Variant, walk
from ..grid_2d import Grid2D
from ..mask.plain import plain_on, speaks_of_rows, widths
from ..mask.tiles import analyse_tiles_2d
from ..rules import TileRules

# What 2-D tiles must leave of the pairs that 1-D tiles compute: they cost an axis more in each load and a test a tile.
WORTH = 0.75
_ROWS, _POSITIONS = 256, 4096  # of the grid on which both are counted, at least; the largest block is a column of it
_Q_TILES = 128  # how many tiles of q are counted, at most
# Of rules: each width takes as long to try as the analysis of the mask, and longer ones have no 2-D tiles. 100 left out
# diamonds; with 400, `explain` of the tests' large files stays below two seconds.
_MOST_NODES = 400
_BATCH, _HEADS, _KV_HEADS, _HEAD_DIM = 4, 8, 4, 64  # of the sample's call
_COLUMNS = 8  # of a 2-D tile: those of a fragment of scores, which are then neighbours


def find_grid(
    variant: Variant, block_q: int, block_kv: int, tiles_1d: TileRules, worth: float = WORTH
) -> Grid2D | None:
    """The grid whose tiles leave the fewest pairs to compute; None if 1-D tiles are about as good.

    They are as wide as a fragment, or of one column where the mask says nothing of rows. All are counted on a sample
    2-D grid.
    """
    best: tuple[float, Grid2D] | None = None
    nodes = walk(tiles_1d.any_kept, tiles_1d.all_kept)
    for width in widths(variant) if len(list(nodes)) <= _MOST_NODES else ():
        whole = live_share(tiles_1d, None, block_q, block_kv, width)
        if not whole:  # nothing lives on the sample: there is nothing that 2-D tiles could leave out
            continue
        plain = plain_on(variant, width)
        wide = min(_COLUMNS, width & -width, block_q, block_kv)
        narrow = () if speaks_of_rows(variant, width) else (1,)
        for columns in dict.fromkeys((*((wide,) if wide < width else ()), *narrow)):
            grid_2d = Grid2D(width, columns, columns)
            rules = analyse_tiles_2d(plain, block_q, block_kv, grid_2d)
            share = live_share(rules, grid_2d, block_q, block_kv) / whole
            if share < (best[0] if best else worth):
                best = share, grid_2d
    return None if best is None else best[1]


def corners(length: int, block: int, columns: int, width: int) -> tuple[Array, Array]:
    """First and last position of each 2-D tile of a sequence, in the order of the kernels: along the grid rows."""
    rows = block // columns
    row, column = np.arange(0, length // width, rows)[:, None], np.arange(0, width, columns)
    last_row = np.minimum(row + rows, length // width) - 1
    return (row * width + column).ravel(), (last_row * width + column + columns - 1).ravel()


def sample_length(width: int) -> int:
    """Positions of the grid on which tiles are counted."""
    return width * max(_ROWS, _POSITIONS // width)


def sampled(length: int, q_first: Array, q_last: Array) -> Environment:
    """What rules read of tiles of q on a sample of so many positions: each is of one head and batch index, so that a
    mask that tells these apart is counted over all of them at no cost. They are spread as the tiles may be, by
    ratios that have nothing to do with the golden one."""
    number = np.arange(q_first.size).reshape(q_first.shape)
    h, b = ((number * ratio % 1 * count).astype(int) for ratio, count in ((0.754878, _HEADS), (0.414214, _BATCH)))
    sizes = {"num_heads": _HEADS, "num_kv_heads": _KV_HEADS, "head_dim": _HEAD_DIM, "q_len": length, "kv_len": length}
    sizes[OFFSET_SYMBOL] = 0
    heads = {"b": b, "h": h, "kv_h": h // (_HEADS // _KV_HEADS)}
    return Environment({**sizes, **heads, "q_first": q_first, "q_last": q_last})


def live_share(rules: TileRules, grid_2d: Grid2D | None, block_q: int, block_kv: int, width: int = 1) -> float:
    """The share of pairs that live tiles hold, on a sample. It is the same for all sizes of tiles, since the share of a
    neighbourhood falls as the grid grows, and counts the largest tiles of q alone: those that are cut short are many
    in a sample, and few in a call."""
    of = grid_2d or Grid2D(width, 0, 0)
    length = sample_length(of.width)
    if grid_2d is None:
        q_first, kv_first = np.arange(0, length, block_q), np.arange(0, length, block_kv)
        q_last, kv_last = np.minimum(q_first + block_q, length) - 1, np.minimum(kv_first + block_kv, length) - 1
        q_pairs, kv_pairs = q_last - q_first + 1, kv_last - kv_first + 1
    else:
        q_first, q_last = corners(length, block_q, grid_2d.q_columns, grid_2d.width)
        kv_first, kv_last = corners(length, block_kv, grid_2d.kv_columns, grid_2d.width)
        q_pairs = in_tile(q_first, q_last, grid_2d.q_columns, grid_2d.width)
        kv_pairs = in_tile(kv_first, kv_last, grid_2d.kv_columns, grid_2d.width)
    some = np.flatnonzero(q_pairs == q_pairs.max())
    if some.size > _Q_TILES:  # spread by the golden ratio, which no period of a mask falls in with
        some = some[(np.arange(_Q_TILES) * 0.618034 % 1 * some.size).astype(int)]
    else:  # for as many heads
        some = np.tile(some, -(-_Q_TILES // some.size))
    q_first, q_last = q_first[some], q_last[some]
    tiles = sampled(length, q_first[:, None], q_last[:, None]).with_symbols(kv_first=kv_first, kv_last=kv_last)
    live = evaluate(rules.any_kept, tiles) & (kv_last >= evaluate(rules.kv_begin, tiles))
    live = live & (kv_first < evaluate(rules.kv_end, tiles))
    return float((np.broadcast_to(live, (q_first.size, kv_first.size)) @ kv_pairs).mean()) / length


def in_tile(first: Array, last: Array, columns: int, width: int) -> Array:
    """How many positions lie in each 2-D tile, of the same columns, from its first corner to its last."""
    found: Array = (last // width - first // width + 1) * columns
    return found
