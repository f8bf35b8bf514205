"""SVG of masks: what stands in it is what is drawn."""

from __future__ import annotations

import base64
import struct
import zlib
from xml.etree import ElementTree

import numpy as np

from attncc.show.drawing import TILE_COLORS
from attncc.show.picture import picture
from attncc.show.svg import SIDE, TOP, svg, tiles_svg

SVG = "{http://www.w3.org/2000/svg}"
MASK = np.tri(50, 70, 20, dtype=bool)
KINDS = np.array([[1, 1, 0], [1, 1, 1]], np.uint8)  # tiles of 32 x 32; PARTIAL is always right
SHOWN = picture(
    "a < b", lambda rows, keys: MASK[np.ix_(rows, keys)], KINDS, q_len=50, kv_len=70, block_q=32, block_kv=32
)


def pixels(image: ElementTree.Element) -> np.ndarray:
    """RGB of each pixel, by reading the PNG."""
    data = base64.b64decode(image.attrib["href"].removeprefix("data:image/png;base64,"))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    parts, at = {}, 8
    while at < len(data):
        (length,), name = struct.unpack_from(">I", data, at), data[at + 4 : at + 8]
        parts[name] = data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length) == (zlib.crc32(name + parts[name]),)
        at += length + 12
    across, down, depth, kind = struct.unpack_from(">IIBB", parts[b"IHDR"])
    assert (depth, kind) == (8, 3)
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(down, across + 1)
    assert not rows[:, 0].any()
    return np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)[rows[:, 1:]]


def test_the_mask_is_black_where_pairs_are_kept() -> None:
    mask, _ = ElementTree.fromstring(svg(SHOWN)).iter(f"{SVG}image")
    assert (mask.attrib["width"], mask.attrib["height"]) == ("70", "50")
    np.testing.assert_array_equal(pixels(mask), np.where(MASK, 0, 255)[..., None].repeat(3, -1))


def test_tiles_have_their_colors_and_reach_beyond_the_lengths() -> None:
    *_, tiles = ElementTree.fromstring(svg(SHOWN)).iter(f"{SVG}image")
    assert (tiles.attrib["width"], tiles.attrib["height"]) == ("96", "64")
    colors = np.array([list(bytes.fromhex(color[1:])) for color in TILE_COLORS.values()])
    np.testing.assert_array_equal(pixels(tiles), colors[KINDS])
    (alone,) = ElementTree.fromstring(tiles_svg(SHOWN)).iter(f"{SVG}image")
    assert alone.attrib == tiles.attrib


def test_a_cell_with_few_pairs_is_not_white() -> None:
    mask = np.zeros((512, 512), bool)
    mask[3, 3] = mask[400, :] = True
    kinds = np.ones((1, 1), np.uint8)
    sizes = {"q_len": 512, "kv_len": 512, "block_q": 512, "block_kv": 512}
    shown = picture("few", lambda rows, keys: mask[np.ix_(rows, keys)], kinds, cells=8, **sizes)
    image, _ = ElementTree.fromstring(svg(shown)).iter(f"{SVG}image")
    assert 0 < pixels(image)[0, 0, 0] < 255


def test_bars_are_as_long_as_rows_keep() -> None:
    computed, kept = ElementTree.fromstring(svg(SHOWN)).iter(f"{SVG}path")
    start = float(kept.attrib["d"][1:].split()[0])
    ends = [float(part.split("V")[0]) - start for part in kept.attrib["d"].split("H")[1:-1]]
    np.testing.assert_allclose(ends, MASK.sum(axis=1) / 70 * 90, atol=0.06)
    assert computed.attrib["d"].endswith(f"V{TOP + SIDE:.1f}H{start:g}Z")


def test_titles_are_escaped() -> None:
    root = ElementTree.fromstring(svg(SHOWN))
    assert root.find(f"{SVG}title").text == "a < b"  # type: ignore[union-attr]


def test_pictures_are_no_wider_than_the_page() -> None:
    """A browser scales what has a viewBox, where its size may shrink."""
    for shown in (svg(SHOWN), tiles_svg(SHOWN)):
        root = ElementTree.fromstring(shown)
        assert root.get("style") == "max-width:100%;height:auto" and root.get("viewBox")
