"""docs/gallery.md shows every spec; `pytest --update-golden` rewrites the page, `python -m docs.make_gallery` the
pictures too."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import make_gallery
from tests.conftest import Golden
from tests.library.cases import SPECS

DOCS = Path(__file__).parent.parent / "docs"


def test_every_spec_is_shown_once() -> None:
    assert sorted(entry.spec for entry in make_gallery.entries()) == list(SPECS)


@pytest.mark.slow
def test_the_page_is_up_to_date(golden: Golden) -> None:
    golden(DOCS / "gallery.md", make_gallery.page())


@pytest.mark.parametrize(("folder", "most"), [("gallery", 1_500_000), ("gallery/thumbnails", 150_000)])
def test_every_picture_is_there_and_small(folder: str, most: int) -> None:
    pictures = {path.stem: path.stat().st_size for path in (DOCS / folder).glob("*.png")}
    assert sorted(pictures) == list(SPECS)
    assert sum(pictures.values()) < most


@pytest.mark.parametrize("spec", ["causal", "relative_distance", "softcap"])
def test_pictures_can_be_drawn(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    monkeypatch.setattr(make_gallery, "PICTURES", tmp_path)
    monkeypatch.setattr(make_gallery, "THUMBNAILS", tmp_path / "thumbnails")
    (tmp_path / "thumbnails").mkdir()
    (entry,) = (item for item in make_gallery.entries() if item.spec == spec)
    make_gallery.draw(entry)
    make_gallery.draw_thumbnail(entry)
    for folder in (tmp_path, tmp_path / "thumbnails"):
        assert (folder / f"{spec}.png").read_bytes().startswith(b"\x89PNG")
