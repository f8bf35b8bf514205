"""A picture of a mask in characters."""

from __future__ import annotations

from itertools import pairwise
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.rules import TileKind
from .drawing import Drawing, Tiles, edges_of

Array = NDArray[Any]

TILE_MARKS = {TileKind.EMPTY: "·", TileKind.PARTIAL: "▒", TileKind.FULL: "█"}
SHADES = "·░▒▓█"
LEGEND = "  ".join(f"{mark} {kind.name.lower()}" for kind, mark in TILE_MARKS.items())


def text(shown: Drawing, width: int = 33, height: int = 20) -> str:
    """Mask and tile map side by side in characters, with the keys of each line's rows: 80 columns."""
    q_edges, kv_edges = edges_of(shown.q_len, height), edges_of(shown.kv_len, width)
    mask = _resample(shown.density, len(q_edges) - 1, len(kv_edges) - 1)
    tiles = _tile_cells(shown, q_edges, kv_edges)
    span = len(kv_edges) - 1
    lines = [f"{'mask, keys →':<{span}}  {'tiles, keys →':<{span}}  keys a row"]
    for i, (start, end) in enumerate(pairwise(q_edges)):
        shades = "".join(_shade(value) for value in mask[i])
        marks = "".join(TILE_MARKS[TileKind(kind)] for kind in tiles[i])
        lines.append(f"{shades}  {marks}  {shown.row_keys[start:end].mean():.0f}")
    return "\n".join((shown.title, "", *lines, "", f"tiles: {LEGEND}", _in_columns(shown.summary())))


def tiles_text(shown: Tiles, width: int = 66, height: int = 20) -> str:
    """The tile map alone."""
    cells = _tile_cells(shown, edges_of(shown.q_len, height), edges_of(shown.kv_len, width))
    lines = ["".join(TILE_MARKS[TileKind(kind)] for kind in row) for row in cells]
    return "\n".join((shown.title, "", *lines, "", f"tiles: {LEGEND}", _in_columns(shown.tile_summary())))


def _in_columns(summary: str) -> str:
    """Lines of numbers in 80 columns; what goes on stands below the first number."""
    return "\n".join(fill(line, 80, subsequent_indent=" " * 7) for line in summary.split("\n"))


def _shade(density: float) -> str:
    """Nothing and everything have marks of their own, whatever lies between is shaded."""
    if density in (0, 1):
        return SHADES[-int(density)]
    return SHADES[1 + min(2, int(density * 3))]


def _resample(cells: Array, rows: int, columns: int) -> Array:
    """Means over a coarser grid."""
    q_edges, kv_edges = edges_of(cells.shape[0], rows), edges_of(cells.shape[1], columns)
    sums = np.add.reduceat(np.add.reduceat(cells, q_edges[:-1], axis=0), kv_edges[:-1], axis=1)
    means: Array = sums / np.outer(np.diff(q_edges), np.diff(kv_edges))
    return means


def _tile_cells(shown: Tiles, q_edges: Array, kv_edges: Array) -> Array:
    """The kind of what each cell covers: of its tiles if they agree, else PARTIAL."""
    rows, columns = _covering(q_edges, shown.block_q), _covering(kv_edges, shown.block_kv)
    least = np.array([[shown.kinds[row, column].min() for column in columns] for row in rows])
    most = np.array([[shown.kinds[row, column].max() for column in columns] for row in rows])
    return np.where(least == most, least, TileKind.PARTIAL)


def _covering(edges: Array, block: int) -> list[slice]:
    """For each cell, the tiles that it touches; of tiles larger than cells, the one in which its middle lies."""
    return [_touched(int(start), int(end), block) for start, end in pairwise(edges)]


def _touched(start: int, end: int, block: int) -> slice:
    if end - start < block:
        middle = (start + end - 1) // 2 // block
        return slice(middle, middle + 1)
    return slice(start // block, -(-end // block))
