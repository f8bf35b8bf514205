"""A picture of a mask as SVG, without a library: for notebooks and `attncc show --svg`.

The cells are an image inside the SVG, one pixel each, stretched without smoothing: a few KiB whatever the mask.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analysis.rules import TileKind
from .drawing import TILE_COLORS, Drawing, Tiles, edges_of

Array = NDArray[Any]
Color = tuple[int, ...]

SIDE = 240  # of a panel
WORK = 90  # the width of the panel of each row's work
TOP = 52
LEFT = 48  # for the numbers beside a panel
BELOW = 48
GRAYS = 64
MOST_ROWS = 240  # of the panel of each row's work


class Cells(NamedTuple):
    """An image: which color each cell has, and how many queries and keys it covers, maybe more than there are."""

    colors: Array  # int [down, across]
    palette: Sequence[Color]
    covers: tuple[int, int]


def svg(shown: Drawing) -> str:
    """Mask, tiles, and the work of each row, side by side."""
    mask, tiles, work = LEFT, 2 * LEFT + SIDE, 5 * LEFT // 2 + 2 * SIDE
    kept = f"kept: {shown.kept / (shown.q_len * shown.kv_len):.2%} of the pairs"
    parts = [
        *_panel(mask, kept, _mask_cells(shown), shown),
        *_panel(tiles, _tile_title(shown), _tile_cells(shown), shown),
        *_legend(tiles, shown),
        *_work(work, shown),
    ]
    return _document(work + WORK + 16, shown.title, parts)


def tiles_svg(shown: Tiles) -> str:
    """The tiles alone."""
    parts = [*_panel(LEFT, _tile_title(shown), _tile_cells(shown), shown), *_legend(LEFT, shown)]
    return _document(2 * LEFT + SIDE, shown.title, parts)


def _document(width: int, title: str, parts: Sequence[str]) -> str:
    """On white, which dark notebooks need; no wider than the page."""
    height, shown = TOP + SIDE + BELOW, escape(title)
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'style="max-width:100%;height:auto" font-family="sans-serif" font-size="11" fill="#222">',
        f"<title>{shown}</title>",
        f'<rect width="{width}" height="{height}" rx="4" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="13" font-weight="bold">{shown}</text>',
        *parts,
        "</svg>",
    )
    return "\n".join(lines) + "\n"


def _panel(x: int, title: str, cells: Cells, shown: Tiles) -> list[str]:
    """Cells in a frame, with a title and the lengths of the axes."""
    bottom, (q_covered, kv_covered) = TOP + SIDE, cells.covers
    place = f'x="{x}" y="{TOP}" width="{SIDE}" height="{SIDE}"'
    return [
        _text(x + SIDE // 2, TOP - 8, title, "middle"),
        f'<svg {place} viewBox="0 0 {shown.kv_len} {shown.q_len}" preserveAspectRatio="none">',
        f'<image width="{kv_covered}" height="{q_covered}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{b64encode(_png(cells)).decode()}"/>',
        "</svg>",
        f'<rect {place} fill="none" stroke="#444"/>',
        _text(x - 5, TOP + 9, "0", "end"),
        _text(x - 5, TOP + SIDE // 2, "queries", "end"),
        _text(x - 5, bottom, str(shown.q_len), "end"),
        _text(x, bottom + 14, "0", "start"),
        _text(x + SIDE // 2, bottom + 14, "keys", "middle"),
        _text(x + SIDE, bottom + 14, str(shown.kv_len), "end"),
    ]


def _text(x: int, y: int, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _mask_cells(shown: Drawing) -> Cells:
    """In shades of gray. Cells that keep little aren't white, those that lack little aren't black."""
    kept = shown.density
    levels = np.clip(np.rint(kept * GRAYS).astype(int), 1 * (kept > 0), GRAYS - 1 * (kept < 1))
    return Cells(levels, [(255 - 255 * level // GRAYS,) * 3 for level in range(GRAYS + 1)], (shown.q_len, shown.kv_len))


def _tile_title(shown: Tiles) -> str:
    return f"tiles {shown.block_q} x {shown.block_kv}"


def _tile_cells(shown: Tiles) -> Cells:
    down, across = shown.kinds.shape
    palette = [tuple(bytes.fromhex(TILE_COLORS[kind][1:])) for kind in TileKind]
    return Cells(shown.kinds, palette, (down * shown.block_q, across * shown.block_kv))


def _legend(x: int, shown: Tiles) -> list[str]:
    y, found = TOP + SIDE + 24, []
    for kind in TileKind:
        share = shown.tiles(kind) / shown.kinds.size
        found += [
            f'<rect x="{x}" y="{y}" width="10" height="10" fill="{TILE_COLORS[kind]}" stroke="#888"/>',
            _text(x + 14, y + 9, f"{kind.name.lower()} {share:.1%}", "start"),
        ]
        x += SIDE // 3 + 14
    return found


def _work(x: int, shown: Drawing) -> list[str]:
    """What each row keeps, and what its tiles make the kernel compute."""
    live = np.minimum(np.count_nonzero(shown.kinds, axis=1) * shown.block_kv, shown.kv_len)
    computed, y = np.repeat(live, shown.block_q)[: shown.q_len], TOP + SIDE + 24
    found = [_text(x + WORK // 2, TOP - 8, "keys a row", "middle")]
    for name, keys, kind, below in (
        ("computed", computed, TileKind.PARTIAL, 0),
        ("kept", shown.row_keys, TileKind.FULL, 12),
    ):
        color = TILE_COLORS[kind]
        found += [
            f'<path d="{_outline(keys, max(int(computed.max()), 1), x)}" fill="{color}"/>',
            f'<rect x="{x}" y="{y - 12 + below}" width="10" height="10" fill="{color}"/>',
            _text(x + 14, y - 3 + below, name, "start"),
        ]
    return found


def _outline(keys: Array, most: int, x: int) -> str:
    """A bar for each row, or for the mean of some rows."""
    edges = edges_of(len(keys), MOST_ROWS)
    means = np.add.reduceat(keys, edges[:-1]) / np.diff(edges)
    across, down = x + WORK * means / most, TOP + SIDE * edges[1:] / len(keys)
    steps = "".join(f"H{end:.1f}V{bottom:.1f}" for end, bottom in zip(across, down, strict=True))
    return f"M{x} {TOP}{steps}H{x}Z"


def _png(cells: Cells) -> bytes:
    """One byte a pixel, with a palette (PNG, RFC 2083)."""
    down, across = cells.colors.shape
    rows = np.zeros((down, across + 1), np.uint8)  # the first byte of a row: no filter
    rows[:, 1:] = cells.colors
    header = struct.pack(">IIBBBBB", across, down, 8, 3, 0, 0, 0)
    palette = b"".join(map(bytes, cells.palette))
    parts = (b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
