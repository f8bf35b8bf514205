from __future__ import annotations

import pytest

from attncc.codegen.line_marks import WIDTH, Line, marked, restored, shown_path
from attncc.source import SourceFile, Span

SOURCE = SourceFile("specs/a.attn", "attn 1\nlet x = 1  # one\nkeep if x <\n   2  # two\n")


def span(text: str) -> Span:
    start = SOURCE.text.index(text)
    return Span(SOURCE, start, start + len(text))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("specs/causal.attn", "specs/causal.attn"),
        ("/home/somebody/causal.attn", "causal.attn"),
        ("../causal.attn", "causal.attn"),
        ("<text>", "<text>"),
    ],
)
def test_paths_are_the_same_everywhere(path: str, shown: str) -> None:
    assert shown_path(path) == shown


def test_marks_only_where_the_count_is_wrong() -> None:
    let, keep = span("let x = 1"), span("keep if x <\n   2")
    lines = [Line("int a;"), Line("b;", let), Line("c;", keep), Line("d;", keep), Line("return;")]
    assert list(marked(lines)) == [
        "    int a;",
        '#line 2 "specs/a.attn"',
        "    b;",
        "    c;",
        '#line 3 "specs/a.attn"',
        "    d;",
        "#line restore",
        "    return;",
    ]


def test_a_long_statement_takes_several_lines() -> None:
    let = span("let x = 1")
    found = list(marked([Line("const bool x = " + " | ".join(["name"] * 40) + ";", let), Line("next;", let)]))
    assert found[0] == '#line 2 "specs/a.attn"' and len(found) == 7
    assert all(len(line) <= WIDTH for line in found) and found[2].startswith("        ")
    assert found[4:6] == ['#line 2 "specs/a.attn"', "    next;"]


def test_the_file_goes_on_with_its_own_lines() -> None:
    text = "\n".join(['#line 9 "a.attn"', "x", "#line restore", "y"])
    assert restored(text, "k.cu").splitlines()[2:] == ['#line 4 "k.cu"', "y"]


def test_a_statement_stands_on_one_line_without_comments() -> None:
    assert span("keep if x <\n   2  # two").one_line == "keep if x < 2"
