"""A picture of a mask by matplotlib, which is imported when something is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.rules import TileKind
from .drawing import TILE_COLORS, Drawing


def save_png(shown: Drawing, path: Path) -> None:
    """Writes a .png: mask, tile map, work of each row. Needs matplotlib (ImportError without)."""
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
    figure.savefig(path, format="png")


def draw_mask(axes: Any, shown: Drawing) -> None:
    """What is kept, in shades of gray, into axes of matplotlib."""
    extent = (0, shown.kv_len, shown.q_len, 0)
    axes.imshow(shown.density, cmap="gray_r", vmin=0, vmax=1, extent=extent, aspect="auto", interpolation="nearest")
    axes.set(xlabel="kv_idx", ylabel="q_idx")


def draw_tiles(axes: Any, shown: Drawing) -> None:
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


def _draw_work(axes: Any, shown: Drawing) -> None:
    """What each row keeps, and what its tiles make the kernel compute."""
    live = np.count_nonzero(shown.kinds, axis=1) * shown.block_kv
    computed = np.repeat(np.minimum(live, shown.kv_len), shown.block_q)[: shown.q_len]
    rows = np.arange(shown.q_len)
    axes.fill_betweenx(rows, computed, step="post", color=TILE_COLORS[TileKind.PARTIAL], label="computed")
    axes.fill_betweenx(rows, shown.row_keys, step="post", color=TILE_COLORS[TileKind.FULL], label="kept")
    axes.set(title="keys a row", ylim=(shown.q_len, 0), xlim=(0, None), yticks=[])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)
