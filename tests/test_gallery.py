"""docs/gallery.md shows every spec; `pytest --update-golden` rewrites the page, `python -m docs.make_gallery` the
pictures too."""

from __future__ import annotations

from pathlib import Path

from docs import make_gallery
from tests.conftest import Golden
from tests.library.cases import SPECS

DOCS = Path(__file__).parent.parent / "docs"


def test_every_spec_is_shown_once() -> None:
    assert sorted(entry.spec for entry in make_gallery.entries()) == list(SPECS)


def test_the_page_is_up_to_date(golden: Golden) -> None:
    golden(DOCS / "gallery.md", make_gallery.page())


def test_every_picture_is_there_and_small() -> None:
    pictures = {path.stem: path.stat().st_size for path in (DOCS / "gallery").iterdir()}
    assert sorted(pictures) == list(SPECS)
    assert sum(pictures.values()) < 1_500_000
