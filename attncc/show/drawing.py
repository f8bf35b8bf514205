"""What a picture of a mask holds: numbers, and the colors of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.rules import TileKind

Array = NDArray[Any]

TILE_COLORS = {TileKind.EMPTY: "#f2efe9", TileKind.PARTIAL: "#e8a33d", TileKind.FULL: "#2f6f8f"}


@dataclass(frozen=True, repr=False)
class Tiles:
    """The tiles of one head of one sequence."""

    title: str
    q_len: int
    kv_len: int
    block_q: int
    block_kv: int
    kinds: Array  # uint8 [q tiles, kv tiles] of TileKind

    def tiles(self, kind: TileKind) -> int:
        return int(np.count_nonzero(self.kinds == kind))

    def tile_summary(self) -> str:
        """How many there are of each kind, one line."""
        total, counts = self.kinds.size, {kind: self.tiles(kind) for kind in TileKind}
        shown = ", ".join(f"{count} {kind.name.lower()} ({count / total:.1%})" for kind, count in counts.items())
        return f"tiles  {self.block_q} x {self.block_kv}: {total} = {shown}"


@dataclass(frozen=True, repr=False)
class Drawing(Tiles):
    """Its mask, too. `density` [cells down, cells across] is the kept part of each cell's pairs."""

    density: Array
    row_keys: Array  # int64 [q_len]: keys that each row keeps
    one_row_of: int = 1  # so many neighbours was asked what it keeps, and stands for all

    @property
    def kept(self) -> int:
        return int(self.row_keys.sum())

    @property
    def computed(self) -> int:
        """Pairs in the tiles that aren't skipped."""
        live = int(np.count_nonzero(self.kinds != TileKind.EMPTY))
        return min(live * self.block_q * self.block_kv, self.q_len * self.kv_len)

    def to_json(self) -> dict[str, Any]:
        """The numbers of the picture; of each tile its kind, 0 EMPTY, 1 PARTIAL, 2 FULL."""
        return {
            "title": self.title,
            "q_len": self.q_len,
            "kv_len": self.kv_len,
            "kept_pairs": self.kept,
            "row_keys": self.row_keys.tolist(),
            "block_q": self.block_q,
            "block_kv": self.block_kv,
            "tiles": {kind.name.lower(): self.tiles(kind) for kind in TileKind},
            "tile_kinds": self.kinds.tolist(),
            **({"one_row_of": self.one_row_of} if self.one_row_of > 1 else {}),
        }

    def summary(self) -> str:
        """The numbers of the picture, four lines, and a fifth where they are of some rows."""
        pairs, empty_rows = self.q_len * self.kv_len, np.count_nonzero(self.row_keys == 0)
        about = "about " * (self.one_row_of > 1)
        return (
            f"mask   {self.q_len} x {self.kv_len}: {about}{self.kept} of {pairs} pairs kept ({self.kept / pairs:.2%})\n"
            f"rows   {self.row_keys.min()} to {self.row_keys.max()} keys a row, {empty_rows} rows keep nothing\n"
            f"{self.tile_summary()}\n"
            f"work   {self.computed / pairs:.2%} of the pairs lie in tiles that are computed{self._sample()}"
        )

    def _sample(self) -> str:
        if self.one_row_of == 1:
            return ""
        return f"\nsample one row of {self.one_row_of}, at random, stands for all of them: all would take long"


def edges_of(length: int, cells: int) -> Array:
    """Borders of at most `cells` nearly equal cells over `length` positions."""
    return np.unique(np.linspace(0, length, min(length, cells) + 1).astype(np.int64))
