"""The grammar is LALR(1) without a conflict, its words are reserved, and the automaton that ships is its own."""

from __future__ import annotations

import lark
import pytest
from lark.exceptions import GrammarError

from attncc import resources
from attncc.diagnostics import AttnccError
from attncc.source import SourceFile
from attncc.syntax import grammar
from attncc.syntax.parser import parse

TEXT = resources.read("grammars", "attn.lark")
KEYWORDS = (
    "all and any attn const dropout else false fn for if import in input keep let mask normalize not on or range scale "
    "schedule score sink sum true variant"
)


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


def test_kept_automaton_is_the_grammars() -> None:
    """`grammars/attn.json` is up to date: from the start on, all of its states do as those of one made afresh."""
    made_afresh = grammar.make(TEXT)
    kept, made = grammar.grammar().parser.parser._parse_table, made_afresh.parser.parser._parse_table
    assert grammar.grammar().source_path == "<deserialized>", "run python grammars/make_automaton.py"
    pairs = {kept.start_states["module"]: made.start_states["module"]}
    for state in (waiting := list(pairs)):
        ours, theirs = kept.states[state], made.states[pairs[state]]
        assert ours.keys() == theirs.keys()
        for token, (action, target) in ours.items():
            other, its_target = theirs[token]
            assert action.name == other.name
            if action.name == "Reduce":
                assert (target.origin, target.expansion, target.alias) == (
                    its_target.origin,
                    its_target.expansion,
                    its_target.alias,
                )
            elif target not in pairs:
                pairs[target] = its_target
                waiting.append(target)
            else:
                assert pairs[target] == its_target
    assert len(pairs) == len(made.states)
    both = grammar.grammar(), made_afresh
    ours, theirs = ([(item.name, item.pattern.to_regexp()) for item in parser.terminals] for parser in both)
    assert ours == theirs


def test_another_version_of_lark_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lark, "__version__", "0")
    monkeypatch.setattr(grammar, "_loaded", lambda kept: pytest.fail("an automaton of another version was loaded"))
    grammar.grammar.cache_clear()
    try:
        assert parse(SourceFile("a.attn", "attn 1 variant v {}")).items[0].name.name == "v"
    finally:
        grammar.grammar.cache_clear()
