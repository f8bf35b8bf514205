"""Lines and columns as editors count them."""

from __future__ import annotations

import pytest

from attncc.lsp.text import Places, normal
from attncc.source import SourceFile

TEXT = "a😀b\n\nnaïve 🙂\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_every_offset_comes_back(encoding: str) -> None:
    places = Places(SourceFile("x.attn", TEXT), encoding)
    for offset in range(len(TEXT) + 1):
        assert places.offset(*places.place(offset)) == offset


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 5), ("utf-16", 3), ("utf-32", 2)])
def test_columns_count_the_units_agreed_on(encoding: str, column: int) -> None:
    assert Places(SourceFile("x.attn", TEXT), encoding).place(TEXT.index("b")) == (0, column)


def test_places_that_are_none() -> None:
    places = Places(SourceFile("x.attn", TEXT))
    assert places.offset(0, 2) == 1  # within the pair of surrogates: before it
    assert places.offset(0, 99) == TEXT.index("\n")
    assert places.offset(99, 0) == len(TEXT)
    assert places.place(10**6) == (3, 0)


def test_line_ends_and_halves_of_characters() -> None:
    assert normal("a\r\nb\rc\n\ud800") == "a\nb\nc\n\ufffd"
