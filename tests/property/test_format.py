"""Random files of the whole language, in random layout: formatting keeps meaning and comments, and is stable."""

from __future__ import annotations

from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from attncc.source import SourceFile
from attncc.syntax.comments import comments
from attncc.syntax.formatter import format_source
from attncc.syntax.parser import parse

# Texts are lists of tokens; what stands between tokens is drawn afterwards.
Tokens = st.SearchStrategy[list[str]]

NAMES = st.sampled_from(["a", "q_pos", "kv_idx", "doc", "a_long_name_for_what_is_kept", "iff", "score", "scale"])
NUMBERS = st.sampled_from(["0", "7", "1_000", "0xFf", ".5", "1.", "2e-3", "9223372036854775807"])
OPERATORS = ["or", "and", "|", "^", "&", "<<", ">>", "+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "==", "!="]


def joined(*parts: Tokens | str) -> Tokens:
    lists = [st.just([part]) if isinstance(part, str) else part for part in parts]
    return st.tuples(*lists).map(lambda drawn: [*chain(*drawn)])


def one(words: st.SearchStrategy[str]) -> Tokens:
    return words.map(lambda word: [word])


def listed(items: Tokens, least: int, most: int) -> Tokens:
    """Items with commas between them."""
    lists = st.lists(items, min_size=least, max_size=most)
    return lists.map(lambda drawn: [*chain(*([",", *item] for item in drawn))][1:])


def larger(inner: Tokens) -> Tokens:
    name = one(st.sampled_from(["a", "min", "doc"]))
    operator, prefix = one(st.sampled_from(OPERATORS)), one(st.sampled_from(["-", "+", "~", "not"]))
    bracketed = joined("(", inner, ")")
    return st.one_of(
        joined(bracketed, operator, bracketed),
        joined(bracketed, operator, bracketed, operator, bracketed),
        joined("(", prefix, bracketed, ")"),
        joined("(", bracketed, "if", bracketed, "else", inner, ")"),
        joined(name, "(", listed(inner, 0, 3), ")"),
        joined(name, "[", listed(inner, 1, 3), "]"),
        joined(
            one(st.sampled_from(["any", "all", "sum"])), "(", inner, "for", "i", "in", "range", "(", inner, ")", ")"
        ),
    )


EXPRESSIONS = st.recursive(one(NAMES | NUMBERS | st.sampled_from(["true", "false"])), larger, max_leaves=8)
PLAIN = one(st.sampled_from(["a", "window", "b2"]))
LET = joined("let", PLAIN, "=", EXPRESSIONS)
KEEP = joined("keep", "if", EXPRESSIONS)
STATEMENTS = st.one_of(
    LET,
    KEEP,
    joined("const", PLAIN, ":", "int", "=", EXPRESSIONS),
    joined("input", PLAIN, ":", "f32"),
    joined("input", PLAIN, ":", "i32", "[", listed(EXPRESSIONS | st.just(["_"]), 1, 4), "]", one(st.just("learnable"))),
    joined("score", "=", EXPRESSIONS),
    joined("scale", EXPRESSIONS),
    joined("sink", PLAIN),
    joined("normalize", "none"),
    joined("dropout", EXPRESSIONS),
)
VALUES = one(st.sampled_from(["auto", "128", "always"]))
SETTINGS = joined(PLAIN, "=", VALUES) | joined(PLAIN, "=", "{", listed(VALUES, 1, 3), "}")


def several(items: Tokens, most: int) -> Tokens:
    return st.lists(items, max_size=most).map(lambda drawn: [*chain(*drawn)])


PARAMETERS = joined("(", listed(PLAIN, 0, 2), ")")
ITEMS = st.one_of(
    joined("variant", PLAIN, "{", several(STATEMENTS, 4), "}"),
    joined("mask", PLAIN, PARAMETERS, "=", EXPRESSIONS),
    joined("mask", PLAIN, PARAMETERS, "{", several(LET | KEEP, 3), "}"),
    joined("schedule", PLAIN, "for", PLAIN, "on", PLAIN, "{", several(SETTINGS, 3), "}"),
    joined("schedule", PLAIN, "for", PLAIN, "decode", "on", PLAIN, "{", several(SETTINGS, 3), "}"),
)
MODULES = joined(
    "attn", "1", several(joined("import", one(st.sampled_from(["masks", '"x#y.attn"']))), 2), several(ITEMS, 4)
)
BETWEEN = st.sampled_from(
    [" "] * 6
    + ["\n"] * 3
    + ["\t", "\r\n", "\n\n", "\n\n\n", " # a\n", "\n#b {\n", "\n# c\n\n", "\n\n#!d\n# e\n", "#\n"]
)


@st.composite
def files(draw: st.DrawFn) -> str:
    tokens = draw(MODULES)
    between = draw(st.lists(BETWEEN, min_size=len(tokens) + 1, max_size=len(tokens) + 1))
    return between[0] + "".join(token + blank for token, blank in zip(tokens, between[1:], strict=True))


@settings(max_examples=60, deadline=None)
@given(files())
def test_meaning_and_comments_stay(text: str) -> None:
    source = SourceFile("a.attn", text)
    result = SourceFile("a.attn", format_source(source))
    assert parse(result) == parse(source)
    assert sorted(item.text for item in comments(result)) == sorted(item.text for item in comments(source))
    assert format_source(result) == result.text


@settings(max_examples=50, deadline=None)
@given(files())
def test_layout(text: str) -> None:
    """No tabs, no blanks at the end of a line, never two blank lines, one newline at the end."""
    result = format_source(SourceFile("a.attn", text))
    assert "\t" not in result
    assert "\n\n\n" not in result
    assert result.endswith("\n")
    assert not result.startswith("\n")
    assert all(line == line.rstrip() for line in result.split("\n"))
