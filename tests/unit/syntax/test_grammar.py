"""The grammar is LALR(1) without a conflict, its words are reserved, and damage to a kept automaton is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lark.exceptions import GrammarError

from attncc import resources
from attncc.diagnostics import AttnccError
from attncc.source import SourceFile
from attncc.syntax import grammar
from attncc.syntax.parser import parse

TEXT = resources.read("grammars", "attn.lark")
KEYWORDS = (
    "all and any attn const dropout else false for if import in input keep let mask normalize not on or range scale "
    "schedule score sink sum true variant"
)


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and no grammar in this process."""
    monkeypatch.setenv("ATTNCC_CACHE", str(tmp_path / "cache"))
    grammar.grammar.cache_clear()
    yield tmp_path / "cache"
    grammar.grammar.cache_clear()


def test_strict() -> None:
    """No shift/reduce conflict, and no two terminals that match the same text."""
    grammar.make(TEXT, strict=True)


def test_strict_would_notice() -> None:
    with pytest.raises(GrammarError, match="Shift/Reduce"):
        grammar.make(TEXT.replace('| or_test "or" and_test ', '| or_test "or" or_test '), strict=True)


def test_keywords() -> None:
    assert sorted(grammar.keywords()) == KEYWORDS.split()
    page = resources.folder("grammars").parent.joinpath("docs", "errors", "A004.md").read_text(encoding="utf-8")
    assert f"`{KEYWORDS}`" in page.replace("\n", " ")


@pytest.mark.parametrize("word", KEYWORDS.split())
def test_keywords_are_never_names(word: str) -> None:
    for text in (f"variant {word} {{}}", f"variant v {{ let {word} = 1 }}", f"mask m({word}) = true"):
        with pytest.raises(AttnccError) as caught:
            parse(SourceFile("a.attn", f"attn 1 {text}"))
        assert caught.value.diagnostics[0].span.text == word


@pytest.mark.parametrize("word", ["forward", "head", "iff", "keeper", "inputs", "attn1", "true_", "anything", "range2"])
def test_names_may_begin_like_keywords(word: str) -> None:
    parse(SourceFile("a.attn", f"attn 1 variant {word} {{ let x = {word} }}"))


def test_second_process_loads_what_the_first_kept(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse(SourceFile("a.attn", "attn 1 variant v {}")).items[0].name.name == "v"
    assert [path.suffix for path in cold.iterdir()] == [".grammar"]
    grammar.grammar.cache_clear()
    monkeypatch.setattr(grammar, "make", lambda text: pytest.fail("made again"))
    assert parse(SourceFile("a.attn", "attn 1 variant v {}")).items[0].name.name == "v"


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 5000])
def test_damaged_entry_is_replaced(cold: Path, damage: bytes) -> None:
    grammar.grammar()
    (entry,) = cold.iterdir()
    entry.write_bytes(damage)
    grammar.grammar.cache_clear()
    parse(SourceFile("a.attn", "attn 1 variant v {}"))
    assert len(entry.read_bytes()) > 10_000


def test_unwritable_folder_costs_only_time(cold: Path) -> None:
    cold.write_text("a file where the folder should be")
    parse(SourceFile("a.attn", "attn 1 variant v {}"))
