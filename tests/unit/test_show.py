"""Pictures of masks, on masks drawn by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attncc import show
from attncc.analysis.rules import TileKind


def draw(mask: np.ndarray, block_q: int, block_kv: int, cells: int = 512) -> show.Picture:
    q_len, kv_len = mask.shape
    kinds = np.zeros((-(-q_len // block_q), -(-kv_len // block_kv)), np.uint8)
    for i, j in np.ndindex(kinds.shape):
        tile = mask[i * block_q : (i + 1) * block_q, j * block_kv : (j + 1) * block_kv]
        kinds[i, j] = TileKind.FULL if tile.all() else TileKind.PARTIAL if tile.any() else TileKind.EMPTY
    sizes = {"q_len": q_len, "kv_len": kv_len, "block_q": block_q, "block_kv": block_kv}
    return show.picture("drawn", lambda rows, keys: mask[np.ix_(rows, keys)], kinds, cells=cells, **sizes)


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
    monkeypatch.setattr(show, "CHUNK", 71)
    np.testing.assert_array_equal(draw(mask, 16, 16).row_keys, whole.row_keys)


def test_text_shows_mask_tiles_and_work_of_each_line() -> None:
    lines = show.text(draw(np.tri(4, 4, dtype=bool), 2, 2)).splitlines()
    assert lines[3:7] == ["█···  ▒▒··  1", "██··  ▒▒··  2", "███·  ██▒▒  3", "████  ██▒▒  4"]
    assert "10 of 16 pairs kept (62.50%), 1 to 4 keys a row, 0 rows keep nothing" in lines[-3]
    assert lines[-2].endswith("4 = 1 empty (25.0%), 2 partial (50.0%), 1 full (25.0%)")
    assert lines[-1].endswith("75.00% of the pairs lie in tiles that are computed")


def test_text_of_a_large_mask_is_small() -> None:
    lines = show.text(draw(np.tri(300, 500, 200, dtype=bool), 32, 32)).splitlines()
    assert len(lines) == 28
    assert all(len(line) <= 100 for line in lines)


def test_a_cell_that_covers_different_tiles_is_partial() -> None:
    mask = np.zeros((200, 200), bool)
    mask[:100, :100] = True
    shown = show.text(draw(mask, 10, 10), width=2, height=2).splitlines()
    assert shown[3:5] == ["█·  █·  100", "··  ··  0"]
    shown = show.text(draw(mask, 10, 10), width=3, height=3).splitlines()
    assert shown[4].startswith("▒░·  ▒▒·")


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_save(tmp_path: Path, kind: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"mask.{kind}"
    show.save(draw(np.tri(40, 40, dtype=bool), 16, 16), path)
    assert path.read_bytes().startswith(magic)
