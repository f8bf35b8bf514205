"""Every word of the language is there once for each of its sorts, with a line on it."""

from __future__ import annotations

from attncc.lsp import words
from attncc.schedule.choice import KNOBS
from attncc.schedule.target import TARGETS
from attncc.semantics import builtins
from attncc.syntax.grammar import keywords

TABLES = {
    "value": builtins.VALUES, "function": builtins.FUNCTIONS, "tag": builtins.TAGS, "dtype": builtins.DTYPES,
    "type": builtins.CONST_TYPES, "property": builtins.PROPERTIES, "normalizer": builtins.NORMALIZERS,
    "pass": builtins.PASSES, "knob": KNOBS, "target": TARGETS,
}  # fmt: skip


def test_keywords_are_those_of_the_grammar() -> None:
    of_grammar = words.of_sort("item", "statement", "operator", "constant", "reduction")
    assert {word.name for word in of_grammar} == keywords()
    assert set(words._KEYWORDS) == keywords()  # and none is left over
    assert {word.name for word in words.of_sort("reduction")} == set(builtins.REDUCTIONS)


def test_tables_are_complete() -> None:
    for sort, table in TABLES.items():
        assert [word.name for word in words.of_sort(sort)] == list(table)


def test_every_word_has_its_line() -> None:
    assert {word.sort for word in words.words()} == set(words.SORTS)
    assert len({(word.name, word.sort) for word in words.words()}) == len(words.words())
    assert [word for word in words.words() if not (word.form and word.doc)] == []
    assert words.find("scale", "value") != words.find("scale", "statement")
    assert words.find("no_such_word") is None
