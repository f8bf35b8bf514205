"""Which tiles kernels load that don't ask about whole tiles of a fixed grid.

Tiles that are asked about part by part: any live part makes them live. And tiles that begin with the first key that a
block of queries looks at.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...evaluate import Environment, evaluate
from ..rules import TileKind, TileRules
from .grid import SLAB, TileGrid, classified


def loaded_pieces(
    rules: TileRules,
    environment: Environment,
    blocks: tuple[int, int],
    parts: tuple[int, int],
    *,
    single_tiles: bool = True,
) -> Iterator[TileGrid]:
    """A sequence's tiles in rectangles, as `pieces` gives them: PARTIAL where some part of the tile is live, else
    EMPTY. `parts`: of the rows, and of the keys, of a tile."""
    lengths = q_len, kv_len = tuple(int(environment.symbols[name]) for name in ("q_len", "kv_len"))
    small = blocks[0] // parts[0], blocks[1] // parts[1]
    q_tiles, kv_tiles = (-(-length // block) for length, block in zip(lengths, blocks, strict=True))
    kv_parts = range(-(-kv_len // small[1]))
    yield TileGrid(np.zeros((1, 0, 0), np.uint8), q_len, kv_len, *blocks)  # where there is no other
    heads = np.size(environment.symbols.get("h", 0))
    height = max(1, SLAB // max(heads * parts[0] * len(kv_parts), 1))
    for first in range(0, q_tiles, height):
        last = min(first + height, q_tiles)
        rows = range(first * parts[0], min(last * parts[0], -(-q_len // small[0])))
        grid = classified(rules, environment, small, rows, kv_parts, single_tiles=single_tiles)
        live = _any_part(np.asarray(grid.kinds != TileKind.EMPTY), (last - first, kv_tiles), parts)
        kinds = np.where(live, TileKind.PARTIAL, TileKind.EMPTY).astype(np.uint8)
        yield TileGrid(kinds, q_len, kv_len, *blocks, first, 0)


def _any_part(live: NDArray[np.bool_], tiles: tuple[int, int], parts: tuple[int, int]) -> NDArray[np.bool_]:
    """Of live parts [heads, rows, columns] the tiles that have one; parts beyond the last row or key are none."""
    heads, down, across = live.shape
    whole = np.zeros((heads, tiles[0] * parts[0], tiles[1] * parts[1]), bool)
    whole[:, :down, :across] = live
    by_part = whole.reshape(heads, tiles[0], parts[0], tiles[1], parts[1])
    return np.asarray(by_part.any(axis=(2, 4)))


def keys_from_first(
    rules: TileRules, environment: Environment, num_heads: int, blocks: tuple[int, int]
) -> tuple[int, int]:
    """The tiles of a sequence, and their keys, over all heads, where those of each block of queries begin with the
    first key that its loop bounds name, and end with the tile that holds the last."""
    (q_len, kv_len), (block_q, block_kv) = (int(environment.symbols[name]) for name in ("q_len", "kv_len")), blocks
    q_first = np.arange(0, q_len, block_q)[:, None]
    rows = environment.with_symbols(q_first=q_first, q_last=np.minimum(q_first + block_q, q_len) - 1)
    begin, _, _, end = (evaluate(bound, rows) + 0 * q_first for bound in rules.bounds)
    tiles = -(-np.maximum(end - begin, 0) // block_kv)
    keys = np.maximum(np.minimum(tiles * block_kv, kv_len - begin), 0)
    repeats = num_heads // (keys.shape[0] if keys.ndim == 3 else 1)
    return int(tiles.sum()) * repeats, int(keys.sum()) * repeats
