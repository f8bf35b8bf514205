"""The mask of a variant as a picture: what is kept, which tiles a kernel skips, how much work each row is.

`Picture` is the data; `text` and `save` draw it, in characters and with matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .analysis.rules import TileKind

Array = NDArray[Any]

TILE_MARKS = {TileKind.EMPTY: "·", TileKind.PARTIAL: "▒", TileKind.FULL: "█"}
TILE_COLORS = {TileKind.EMPTY: "#f2efe9", TileKind.PARTIAL: "#e8a33d", TileKind.FULL: "#2f6f8f"}
SHADES = "·░▒▓█"
CHUNK = 1 << 21  # pairs of the mask that are evaluated at a time


@dataclass(frozen=True)
class Picture:
    """One head of one sequence. `density` [cells down, cells across] is the kept part of each cell's pairs."""

    title: str
    q_len: int
    kv_len: int
    block_q: int
    block_kv: int
    density: Array
    row_keys: Array  # int64 [q_len]: keys that each row keeps
    kinds: Array  # uint8 [q tiles, kv tiles] of TileKind

    @property
    def kept(self) -> int:
        return int(self.row_keys.sum())

    @property
    def computed(self) -> int:
        """Pairs in the tiles that aren't skipped."""
        live = int(np.count_nonzero(self.kinds != TileKind.EMPTY))
        return min(live * self.block_q * self.block_kv, self.q_len * self.kv_len)

    def tiles(self, kind: TileKind) -> int:
        return int(np.count_nonzero(self.kinds == kind))

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
        }

    def summary(self) -> str:
        """The numbers of the picture, three lines."""
        pairs, tiles, empty_rows = self.q_len * self.kv_len, self.kinds.size, np.count_nonzero(self.row_keys == 0)
        counts = {kind: self.tiles(kind) for kind in TileKind}
        shown = ", ".join(f"{count} {kind.name.lower()} ({count / tiles:.1%})" for kind, count in counts.items())
        return (
            f"mask   {self.q_len} x {self.kv_len}: {self.kept} of {pairs} pairs kept ({self.kept / pairs:.2%}), "
            f"{self.row_keys.min()} to {self.row_keys.max()} keys a row, {empty_rows} rows keep nothing\n"
            f"tiles  {self.block_q} x {self.block_kv}: {tiles} = {shown}\n"
            f"work   {self.computed / pairs:.2%} of the pairs lie in tiles that are computed"
        )


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
) -> Picture:
    """Draws a mask in at most `cells` x `cells` cells, a tile's rows at a time.

    `keep` takes int64 positions of queries [n] and of keys [m] and returns bool that broadcasts to [n, m]: it is asked
    for PARTIAL tiles alone. `kinds` is the tile map [q tiles, kv tiles].
    """
    q_edges, kv_edges = _edges(q_len, cells), _edges(kv_len, cells)
    row_keys = np.empty(q_len, np.int64)
    counts = np.zeros((len(q_edges) - 1, len(kv_edges) - 1), np.int64)
    for tile, kinds_of_row in enumerate(kinds):
        full = _keys_by_cell(kinds_of_row == TileKind.FULL, kv_edges, block_kv)
        partial = np.flatnonzero(kinds_of_row == TileKind.PARTIAL)[:, None] * block_kv + np.arange(block_kv)
        keys = partial[partial < kv_len]
        key_cells, key_starts = _runs(kv_edges, keys)
        first, end = tile * block_q, min((tile + 1) * block_q, q_len)
        for rows in _chunks(first, end, max(1, CHUNK // max(len(keys), 1))):
            kept = np.broadcast_to(keep(rows, keys), (len(rows), len(keys)))
            row_keys[rows] = np.count_nonzero(kept, axis=1) + full.sum()
            row_cells, row_starts = _runs(q_edges, rows)
            counts[row_cells] += np.outer(np.diff(row_starts, append=len(rows)), full)
            if len(keys):
                by_key_cell = np.add.reduceat(kept, key_starts, axis=1, dtype=np.int64)
                counts[np.ix_(row_cells, key_cells)] += np.add.reduceat(by_key_cell, row_starts, axis=0)
    density = counts / np.outer(np.diff(q_edges), np.diff(kv_edges))
    return Picture(title, q_len, kv_len, block_q, block_kv, density, row_keys, kinds)


def _keys_by_cell(chosen: Array, edges: Array, block: int) -> Array:
    """How many keys of the chosen tiles lie between each two edges."""
    before = np.concatenate([[0], np.cumsum(chosen, dtype=np.int64)]) * block
    tile = np.minimum(edges // block, len(chosen) - 1)
    return np.diff(before[tile] + chosen[tile] * (edges - tile * block))


def _runs(edges: Array, positions: Array) -> tuple[Array, Array]:
    """The cells in which ascending positions lie, and for each the index of the first of its positions."""
    return np.unique(np.searchsorted(edges, positions, side="right") - 1, return_index=True)


def _edges(length: int, cells: int) -> Array:
    """Borders of at most `cells` nearly equal cells over `length` positions."""
    return np.unique(np.linspace(0, length, min(length, cells) + 1).astype(np.int64))


def _chunks(first: int, end: int, size: int) -> Iterator[Array]:
    for start in range(first, end, size):
        yield np.arange(start, min(start + size, end))


# -------------------------------------------------------------------- text


def text(shown: Picture, width: int = 33, height: int = 20) -> str:
    """Mask and tile map side by side in characters, with the keys of each line's rows: 80 columns."""
    q_edges, kv_edges = _edges(shown.q_len, height), _edges(shown.kv_len, width)
    mask = _resample(shown.density, len(q_edges) - 1, len(kv_edges) - 1)
    tiles = _tile_cells(shown, q_edges, kv_edges)
    span = len(kv_edges) - 1
    lines = [f"{'mask, keys →':<{span}}  {'tiles, keys →':<{span}}  keys a row"]
    for i, (start, end) in enumerate(pairwise(q_edges)):
        shades = "".join(_shade(value) for value in mask[i])
        marks = "".join(TILE_MARKS[TileKind(kind)] for kind in tiles[i])
        lines.append(f"{shades}  {marks}  {shown.row_keys[start:end].mean():.0f}")
    legend = "  ".join(f"{mark} {kind.name.lower()}" for kind, mark in TILE_MARKS.items())
    return "\n".join((shown.title, "", *lines, "", f"tiles: {legend}", shown.summary()))


def _shade(density: float) -> str:
    """Nothing and everything have marks of their own, whatever lies between is shaded."""
    if density in (0, 1):
        return SHADES[-int(density)]
    return SHADES[1 + min(2, int(density * 3))]


def _resample(cells: Array, rows: int, columns: int) -> Array:
    """Means over a coarser grid."""
    q_edges, kv_edges = _edges(cells.shape[0], rows), _edges(cells.shape[1], columns)
    sums = np.add.reduceat(np.add.reduceat(cells, q_edges[:-1], axis=0), kv_edges[:-1], axis=1)
    means: Array = sums / np.outer(np.diff(q_edges), np.diff(kv_edges))
    return means


def _tile_cells(shown: Picture, q_edges: Array, kv_edges: Array) -> Array:
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


# -------------------------------------------------------------------- pictures


def save(shown: Picture, path: Path) -> None:
    """Writes a .png or .svg: mask, tile map, work of each row. Needs matplotlib (ImportError without)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.8), dpi=120, layout="constrained")
    mask, tiles, work = figure.subplots(1, 3, width_ratios=(1, 1, 0.35))
    figure.suptitle(shown.title)
    draw_mask(mask, shown)
    mask.set(title=f"kept: {shown.kept / (shown.q_len * shown.kv_len):.2%} of the pairs")
    draw_tiles(tiles, shown)
    labels = [f"{kind.name.lower()} {shown.tiles(kind) / shown.kinds.size:.1%}" for kind in TileKind]
    tiles.legend(handles=tile_patches(labels), loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False)
    _draw_work(work, shown)
    figure.savefig(path)


def draw_mask(axes: Any, shown: Picture) -> None:
    """What is kept, in shades of gray, into axes of matplotlib."""
    extent = (0, shown.kv_len, shown.q_len, 0)
    axes.imshow(shown.density, cmap="gray_r", vmin=0, vmax=1, extent=extent, aspect="auto", interpolation="nearest")
    axes.set(xlabel="kv_idx", ylabel="q_idx")


def draw_tiles(axes: Any, shown: Picture) -> None:
    """The tile map, in the colors of `TILE_COLORS`."""
    from matplotlib.colors import ListedColormap

    down, across = shown.kinds.shape
    extent = (0, across * shown.block_kv, down * shown.block_q, 0)
    colors = ListedColormap([TILE_COLORS[kind] for kind in TileKind])
    axes.imshow(shown.kinds, cmap=colors, vmin=0, vmax=2, extent=extent, aspect="auto", interpolation="nearest")
    axes.set(
        title=f"tiles {shown.block_q} x {shown.block_kv}",
        xlabel="kv_idx",
        xlim=(0, shown.kv_len),
        ylim=(shown.q_len, 0),
    )


def tile_patches(labels: Sequence[str]) -> list[Any]:
    """The patches of a legend of the three kinds of tiles."""
    from matplotlib.patches import Patch

    return [Patch(color=TILE_COLORS[kind], label=label) for kind, label in zip(TileKind, labels, strict=True)]


def _draw_work(axes: Any, shown: Picture) -> None:
    """What each row keeps, and what its tiles make the kernel compute."""
    live = np.count_nonzero(shown.kinds, axis=1) * shown.block_kv
    computed = np.repeat(np.minimum(live, shown.kv_len), shown.block_q)[: shown.q_len]
    rows = np.arange(shown.q_len)
    axes.fill_betweenx(rows, computed, step="post", color=TILE_COLORS[TileKind.PARTIAL], label="computed")
    axes.fill_betweenx(rows, shown.row_keys, step="post", color=TILE_COLORS[TileKind.FULL], label="kept")
    axes.set(title="keys a row", ylim=(shown.q_len, 0), xlim=(0, None), yticks=[])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)
