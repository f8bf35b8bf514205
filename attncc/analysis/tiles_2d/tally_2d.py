"""2-D tiles, counted as kernels go over them: side by side, or windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...evaluate import Array, Environment, evaluate
from ..grid_2d import Grid2D
from ..mask.grid import SLAB, Tally, tile_kinds
from ..rules import TileKind, TileRules
from .fixed import corners, in_tile

Blocks = tuple[int, int]  # block_q, block_kv


def tally_2d(rules: TileRules, environment: Environment, num_heads: int, blocks: Blocks, grid_2d: Grid2D) -> Tally:
    """The tiles of one sequence, whose lengths are multiples of the grid's width."""
    count = _windows if rules.columns is not None else _fixed
    return count(rules, environment, num_heads, blocks, grid_2d)


def tile_kinds_2d(
    rules: TileRules, environment: Environment, blocks: Blocks, grid_2d: Grid2D
) -> Iterator[NDArray[np.uint8]]:
    """What 2-D tiles are, [num_heads or 1, tiles of q, tiles of kv], some tiles of q at a time."""
    (q_first, q_last), (kv_first, kv_last) = _sides(environment, blocks, grid_2d)
    heads = np.size(environment.symbols.get("h", 0))
    height = max(1, SLAB // max(kv_first.size * heads, 1))
    keys = environment.with_symbols(kv_first=kv_first, kv_last=kv_last)
    for start in range(0, q_first.size, height):
        some = slice(start, start + height)
        yield tile_kinds(rules, keys.with_symbols(q_first=q_first[some, None], q_last=q_last[some, None]))


def _sides(environment: Environment, blocks: Blocks, grid_2d: Grid2D) -> tuple[tuple[Array, Array], ...]:
    """The corners of the tiles of queries, and of those of keys."""
    q_len, kv_len = (int(environment.symbols[name]) for name in ("q_len", "kv_len"))
    of_q = corners(q_len, blocks[0], grid_2d.q_columns, grid_2d.width)
    return of_q, corners(kv_len, blocks[1], grid_2d.kv_columns, grid_2d.width)


def _fixed(rules: TileRules, environment: Environment, num_heads: int, blocks: Blocks, grid_2d: Grid2D) -> Tally:
    of_q, of_kv = _sides(environment, blocks, grid_2d)
    q_sizes = in_tile(*of_q, grid_2d.q_columns, grid_2d.width)
    kv_sizes = in_tile(*of_kv, grid_2d.kv_columns, grid_2d.width)
    kinds, live_keys, live_rows, done = dict.fromkeys(TileKind, 0), 0, 0, 0
    used_rows = used_q_tiles = 0
    used = np.zeros((num_heads, kv_sizes.size), bool)
    for piece in tile_kinds_2d(rules, environment, blocks, grid_2d):
        heads, rows, _ = piece.shape
        live, alike = piece != TileKind.EMPTY, num_heads // heads
        for kind in TileKind:
            kinds[kind] += alike * int(np.count_nonzero(piece == kind))
        live_keys += alike * int(live.sum(axis=(0, 1)) @ kv_sizes)
        live_rows += alike * int(live.sum(axis=(0, 2)) @ q_sizes[done : done + rows])
        seeing = live.any(axis=2).sum(axis=0)
        used_rows += alike * int(seeing @ q_sizes[done : done + rows])
        used_q_tiles += alike * int(seeing.sum())
        used |= live.any(axis=1)
        done += rows
    used_keys = int(used.sum(axis=0) @ kv_sizes)
    of_keys, of_rows = (used_keys, int(used.sum())), (used_rows, used_q_tiles)
    return Tally(int(environment.symbols["q_len"]), *blocks, kinds, live_keys, live_rows, *of_keys, *of_rows)


def _windows(rules: TileRules, environment: Environment, num_heads: int, blocks: Blocks, grid_2d: Grid2D) -> Tally:
    """Each block of queries has tiles of its own, none of which is tested. What they leave out of all that the grid
    has room for is EMPTY."""
    assert rules.columns is not None
    (q_first, q_last), _ = _sides(environment, blocks, grid_2d)
    seen = environment.with_symbols(q_first=q_first[:, None], q_last=q_last[:, None])
    bounds = (rules.kv_begin, rules.kv_end, *rules.columns)
    begin, end, left, right = np.broadcast_arrays(*(evaluate(bound, seen) for bound in bounds), q_first[:, None])[:4]
    rows = np.where(end > begin, -(-end // grid_2d.width) - begin // grid_2d.width, 0)
    tile_rows, grid_rows = blocks[1] // grid_2d.kv_columns, int(environment.symbols["kv_len"]) // grid_2d.width
    down = -(-rows // tile_rows)
    across = np.maximum(-(-(right - left) // grid_2d.kv_columns), 1)
    alike = num_heads // (rows.size // q_first.size)
    live = alike * int((down * across).sum())
    room = num_heads * q_first.size * -(-grid_rows // tile_rows) * -(-grid_2d.width // grid_2d.kv_columns)
    kinds = {TileKind.EMPTY: room - live, TileKind.PARTIAL: live, TileKind.FULL: 0}
    keys = alike * int((rows * across).sum()) * grid_2d.kv_columns
    q_sizes = in_tile(q_first, q_last, grid_2d.q_columns, grid_2d.width)
    live_rows = alike * int((down * across * q_sizes[:, None]).sum())
    seeing = (down > 0).sum(axis=1)
    of_rows = alike * int(seeing @ q_sizes), alike * int(seeing.sum())
    return Tally(int(environment.symbols["q_len"]), *blocks, kinds, keys, live_rows, keys, live, *of_rows)
