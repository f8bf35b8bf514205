"""Pictures that show themselves: as text in a terminal, as SVG in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.rules import TileKind
from .drawing import Drawing, Tiles, edges_of
from .svg import svg, tiles_svg
from .text import text, tiles_text

Array = NDArray[Any]

CHUNK = 1 << 21  # pairs of the mask that are evaluated at a time


class Picture(Drawing):
    """A mask, its tiles, and the work of each row."""

    def __repr__(self) -> str:
        return text(self)

    def _repr_svg_(self) -> str:
        return svg(self)


class TileMap(np.ndarray[Any, np.dtype[np.uint8]]):
    """uint8 [batch, heads, q tiles, kv tiles]: 0 EMPTY, 1 PARTIAL, 2 FULL.

    It shows the tiles of its first sequence and head, as SVG in a notebook. Parts of it, copies, and what is computed
    from it are arrays like any other.
    """

    _title: str | None = None
    _lengths: tuple[int, int]
    _blocks: tuple[int, int]

    @classmethod
    def of(cls, kinds: NDArray[np.uint8], title: str, lengths: tuple[int, int], blocks: tuple[int, int]) -> TileMap:
        """`lengths` are q_len and kv_len, `blocks` block_q and block_kv."""
        found = kinds.view(cls)
        found._title, found._lengths, found._blocks = title, lengths, blocks
        return found

    def __getitem__(self, index: Any) -> Any:
        return self.view(np.ndarray)[index]

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __repr__(self) -> str:
        shown = self._first()
        return repr(self.view(np.ndarray)) if shown is None else tiles_text(shown)

    __str__ = __repr__

    def _repr_svg_(self) -> str | None:
        shown = self._first()
        return None if shown is None else tiles_svg(shown)

    def _first(self) -> Tiles | None:
        """What is shown; None for copies of it, and where there are no tiles."""
        if self._title is None or not self.size:
            return None
        batch, heads = self.shape[:2]
        several = [f"{name} 0 of {count}" for name, count in (("sequence", batch), ("head", heads)) if count > 1]
        return Tiles(", ".join([self._title, *several]), *self._lengths, *self._blocks, self[0, 0])


def picture(
    title: str,
    keep: Callable[[Array, Array], Array],
    kinds: Array,
    *,
    q_len: int,
    kv_len: int,
    block_q: int,
    block_kv: int,
    cells: int = 512,
    one_row_of: int = 1,
) -> Picture:
    """Draws a mask in at most `cells` x `cells` cells, a tile's rows at a time.

    `keep` takes int64 positions of queries [n] and of keys [m] and returns bool that broadcasts to [n, m]: it is asked
    for PARTIAL tiles alone. `kinds` is the tile map [q tiles, kv tiles]. Of `one_row_of` neighbours one is asked for,
    chosen at random as masks may have a period, and stands for all.
    """
    asked = _asked(q_len, one_row_of)
    q_edges, kv_edges = edges_of(q_len, cells), edges_of(kv_len, cells)
    row_keys = np.empty(q_len, np.int64)
    counts = np.zeros((len(q_edges) - 1, len(kv_edges) - 1), np.int64)
    for tile, kinds_of_row in enumerate(kinds):
        full = _keys_by_cell(kinds_of_row == TileKind.FULL, kv_edges, block_kv)
        partial = np.flatnonzero(kinds_of_row == TileKind.PARTIAL)[:, None] * block_kv + np.arange(block_kv)
        keys = partial[partial < kv_len]
        key_cells, key_starts = _runs(kv_edges, keys)
        first, end = tile * block_q, min((tile + 1) * block_q, q_len)
        for rows in _chunks(first, end, max(1, CHUNK // max(len(keys), 1))):
            known, places = np.unique(asked[rows], return_inverse=True)
            kept = np.broadcast_to(keep(known, keys), (len(known), len(keys)))[places]
            row_keys[rows] = np.count_nonzero(kept, axis=1) + full.sum()
            row_cells, row_starts = _runs(q_edges, rows)
            counts[row_cells] += np.outer(np.diff(row_starts, append=len(rows)), full)
            if len(keys):
                by_key_cell = np.add.reduceat(kept, key_starts, axis=1, dtype=np.int64)
                counts[np.ix_(row_cells, key_cells)] += np.add.reduceat(by_key_cell, row_starts, axis=0)
    density = counts / np.outer(np.diff(q_edges), np.diff(kv_edges))
    return Picture(title, q_len, kv_len, block_q, block_kv, kinds, density, row_keys, one_row_of)


def _asked(q_len: int, one_row_of: int) -> Array:
    """For each row the one that stands for it."""
    first = np.arange(q_len) // one_row_of * one_row_of
    found: Array = np.minimum(first + np.random.default_rng(0).integers(one_row_of, size=q_len)[first], q_len - 1)
    return found


def _keys_by_cell(chosen: Array, edges: Array, block: int) -> Array:
    """How many keys of the chosen tiles lie between each two edges."""
    before = np.concatenate([[0], np.cumsum(chosen, dtype=np.int64)]) * block
    tile = np.minimum(edges // block, len(chosen) - 1)
    return np.diff(before[tile] + chosen[tile] * (edges - tile * block))


def _runs(edges: Array, positions: Array) -> tuple[Array, Array]:
    """The cells in which ascending positions lie, and for each the index of the first of its positions."""
    return np.unique(np.searchsorted(edges, positions, side="right") - 1, return_index=True)


def _chunks(first: int, end: int, size: int) -> Iterator[Array]:
    for start in range(first, end, size):
        yield np.arange(start, min(start + size, end))
