"""Pictures of masks, on masks drawn by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attncc
from attncc.analysis.rules import TileKind
from attncc.show import picture
from attncc.show.drawing import Drawing
from attncc.show.picture import Picture, TileMap
from attncc.show.plot import save_png
from attncc.show.text import text


def draw(mask: np.ndarray, block_q: int, block_kv: int, cells: int = 512) -> Picture:
    q_len, kv_len = mask.shape
    kinds = np.zeros((-(-q_len // block_q), -(-kv_len // block_kv)), np.uint8)
    for i, j in np.ndindex(kinds.shape):
        tile = mask[i * block_q : (i + 1) * block_q, j * block_kv : (j + 1) * block_kv]
        kinds[i, j] = TileKind.FULL if tile.all() else TileKind.PARTIAL if tile.any() else TileKind.EMPTY
    sizes = {"q_len": q_len, "kv_len": kv_len, "block_q": block_q, "block_kv": block_kv}
    return picture.picture("drawn", lambda rows, keys: mask[np.ix_(rows, keys)], kinds, cells=cells, **sizes)


def test_counts_are_exact_at_any_resolution() -> None:
    mask = np.random.default_rng(0).random((97, 203)) < 0.3
    for cells in (7, 512):
        shown = draw(mask, 16, 32, cells)
        assert shown.kept == mask.sum()
        np.testing.assert_array_equal(shown.row_keys, mask.sum(axis=1))
    np.testing.assert_array_equal(draw(mask, 16, 32).density, mask)


def test_density_is_the_mean_of_each_cell() -> None:
    mask = np.random.default_rng(0).random((60, 90)) < 0.3
    expected = mask.reshape(6, 10, 6, 15).mean(axis=(1, 3))
    np.testing.assert_allclose(draw(mask, 16, 16, cells=6).density, expected)


def test_chunks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = np.tri(50, 70, 20, dtype=bool)
    whole = draw(mask, 16, 16)
    monkeypatch.setattr(picture, "CHUNK", 71)
    np.testing.assert_array_equal(draw(mask, 16, 16).row_keys, whole.row_keys)


def test_one_of_some_rows_stands_for_them() -> None:
    mask = np.random.default_rng(0).random((50, 70)) < 0.3
    asked: list[int] = []

    def keep(rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
        asked.extend(rows.tolist())
        return mask[np.ix_(rows, keys)]

    kinds = np.full((4, 5), TileKind.PARTIAL, np.uint8)
    shown = picture.picture("m", keep, kinds, q_len=50, kv_len=70, block_q=16, block_kv=16, one_row_of=8)
    assert [row // 8 for row in sorted(asked)] == list(range(7)) and any(row % 8 for row in asked)
    stand_ins = np.repeat(sorted(asked), 8)[:50]
    np.testing.assert_array_equal(shown.row_keys, mask[stand_ins].sum(axis=1))
    assert "of 3500 pairs kept" in str(shown) and "about" in str(shown) and "one row of 8" in str(shown)
    assert shown.to_json()["one_row_of"] == 8


def test_text_shows_mask_tiles_and_work_of_each_line() -> None:
    lines = text(draw(np.tri(4, 4, dtype=bool), 2, 2)).splitlines()
    assert lines[3:7] == ["█···  ▒▒··  1", "██··  ▒▒··  2", "███·  ██▒▒  3", "████  ██▒▒  4"]
    assert lines[-4].endswith("10 of 16 pairs kept (62.50%)")
    assert lines[-3].endswith("1 to 4 keys a row, 0 rows keep nothing")
    assert lines[-2].endswith("4 = 1 empty (25.0%), 2 partial (50.0%), 1 full (25.0%)")
    assert lines[-1].endswith("75.00% of the pairs lie in tiles that are computed")


def test_text_of_a_large_mask_is_small() -> None:
    lines = text(draw(np.tri(300, 500, 200, dtype=bool), 32, 32)).splitlines()
    assert len(lines) == 29
    assert all(len(line) <= 80 for line in lines)


def test_a_cell_that_covers_different_tiles_is_partial() -> None:
    mask = np.zeros((200, 200), bool)
    mask[:100, :100] = True
    shown = text(draw(mask, 10, 10), width=2, height=2).splitlines()
    assert shown[3:5] == ["█·  █·  100", "··  ··  0"]
    shown = text(draw(mask, 10, 10), width=3, height=3).splitlines()
    assert shown[4].startswith("▒░·  ▒▒·")


def test_save_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "mask.png"
    save_png(draw(np.tri(40, 40, dtype=bool), 16, 16), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_shows_itself() -> None:
    shown = draw(np.tri(4, 4, dtype=bool), 2, 2)
    assert isinstance(shown, Drawing)
    assert repr(shown) == str(shown) == text(shown)
    assert shown._repr_svg_().startswith("<svg ")


# -------------------------------------------------------------------- tile maps


def test_a_tile_map_shows_itself_and_is_an_array() -> None:
    kinds = attncc.parse("causal").tile_map(40, 40, 10, 20)
    assert isinstance(kinds, TileMap)
    lines = repr(kinds).splitlines()
    assert lines[0] == "causal"
    assert lines[-1] == "tiles  10 x 20: 8 = 2 empty (25.0%), 4 partial (50.0%), 2 full (25.0%)"
    assert str(kinds) == repr(kinds)
    assert "tiles 10 x 20" in str(kinds._repr_svg_())
    np.testing.assert_array_equal(kinds, [[[[1, 0], [1, 0], [2, 1], [2, 1]]]])


def test_what_is_made_of_a_tile_map_is_a_plain_array() -> None:
    kinds = attncc.parse("causal").tile_map(40, 40, 10, 20)
    for made in (kinds[0], kinds[0, 0], kinds == 2, kinds + kinds, np.asarray(kinds)):
        assert type(made) is np.ndarray
    assert kinds[0, 0, 0, 0] == 1
    assert kinds.sum() == 8
    copy = kinds.copy()
    assert repr(copy).startswith("array(")
    assert copy._repr_svg_() is None


def test_it_says_which_of_several_it_shows() -> None:
    lengths = np.array([3, 20], np.int32)
    assert repr(attncc.parse("prefix_lm").tile_map(40, 40, 20, 20, prefix_len=lengths)).startswith(
        "prefix_lm, sequence 0 of 2\n"
    )


def test_a_tile_map_without_tiles() -> None:
    assert repr(attncc.parse("causal").tile_map(0, 40, 20, 20)).startswith("array(")
