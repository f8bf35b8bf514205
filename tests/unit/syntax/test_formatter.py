"""The layout: what it keeps, what it changes, and that it is stable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attncc import resources
from attncc.diagnostics import AttnccError
from attncc.source import SourceFile
from attncc.syntax.comments import comments
from attncc.syntax.formatter import format_source
from attncc.syntax.parser import parse

CANONICAL = """\
# Above everything.
attn 1  # the version

import masks
import "mine.attn"  # mine

mask window(width) = 0 <= q_pos - kv_idx < width  # exactly width keys
mask everything() = true

mask same_image(first, last) {  # a body
    let image = kv_idx // 64
    keep if first[image] <= q_pos < last[image]
}

# Documentation of the variant,
#   indented as it was.
variant alibi_documents {
    const width: int = 1_024  # baked in
    input slope: f32[head]    # one for each head
    input doc:   i32[batch, pos] nondecreasing
    input table: bool[_, width + 1] learnable

    # About the masks.
    keep if q_pos >= kv_idx
    keep if window(width) and (a or not b)

    score = score - slope[h] * (q_pos - kv_idx)  # top to bottom
    dropout 0.1
    # At the end.
}  # closed

variant full {}

schedule fast for alibi_documents backward on sm_90a {
    loop     = q_outer
    # About the block.
    block_kv = {128, 176}  # candidates
    stages   = 2           # deep enough
}

# The end.
"""


def formatted(text: str) -> str:
    """The canonical text, checked for stability and meaning."""
    result = format_source(SourceFile("a.attn", text))
    assert format_source(SourceFile("a.attn", result)) == result
    assert parse(SourceFile("a.attn", result)) == parse(SourceFile("a.attn", text))
    before, after = ([item.text for item in comments(SourceFile("a.attn", it))] for it in (text, result))
    assert sorted(before) == sorted(after)
    return result


def body(lines: str) -> str:
    """The formatted body of a variant, without indentation."""
    inner = formatted(f"attn 1\nvariant v {{\n{lines}\n}}\n").split("{\n", 1)[1].rsplit("}", 1)[0]
    return re.sub("^    ", "", inner, flags=re.MULTILINE)


def test_canonical_text_stays() -> None:
    assert formatted(CANONICAL) == CANONICAL


def test_layout_does_not_matter() -> None:
    """Squeezed together or torn apart, without comments and blank lines, it is the same text."""
    plain = re.sub("#[^\n]*", "", CANONICAL)
    tokens = re.findall(r'"[^"]*"|[\w.]+|<=|>=|//|\S', plain)
    assert formatted(" ".join(tokens)) == formatted("\n".join(tokens)) == formatted("\t \r\n".join(tokens))


def test_windows_lines_and_tabs() -> None:
    assert formatted(CANONICAL.replace("\n", "\r\n").replace("    ", "\t")) == CANONICAL


@pytest.mark.parametrize("count", [1, 2, 5])
def test_one_blank_line_stays(count: int) -> None:
    assert body("let a = 1" + "\n" * (count + 1) + "let b = 2") == "let a = 1\n\nlet b = 2\n"


def test_no_blank_lines_at_the_edges_of_a_body() -> None:
    assert body("\n\nlet a = 1\n\n") == "let a = 1\n"


def test_one_statement_a_line() -> None:
    assert body("let a = 1 let b = 2") == "let a = 1\nlet b = 2\n"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("((a))+(b*c)", "a + b * c"),
        ("(a+b)*c", "(a + b) * c"),
        ("a-(b-c)", "a - (b - c)"),
        ("(a-b)-c", "a - b - c"),
        ("a/(b*c)", "a / (b * c)"),
        ("not(a and b)or(not c)", "not (a and b) or not c"),
        ("(not a)==b", "(not a) == b"),
        ("not(a==b)", "not a == b"),
        ("(a<b)<c", "(a < b) < c"),
        ("a<(b<c)", "a < (b < c)"),
        ("a<b<c", "a < b < c"),
        ("(a and b)and(c and d)", "a and b and (c and d)"),
        ("-(-a)", "--a"),
        ("-(a+b)", "-(a + b)"),
        ("(-a)*b", "-a * b"),
        ("-(a*b)", "-(a * b)"),
        ("~ a&b", "~a & b"),
        ("(a if b else c)+d", "(a if b else c) + d"),
        ("a if b else(c if d else e)", "a if b else c if d else e"),
        ("(a if b else c)if d else e", "(a if b else c) if d else e"),
        ("a if(b if c else d)else e", "a if (b if c else d) else e"),
        ("any( (a[i,j])for i in range( 4 ))", "any(a[i, j] for i in range(4))"),
        ("f( )+g(a,(b))", "f() + g(a, b)"),
        ("1_000+0xFF+1e-6+.5+1.", "1_000 + 0xFF + 1e-6 + .5 + 1."),
    ],
)
def test_expressions(written: str, canonical: str) -> None:
    assert body(f"let x={written}") == f"let x = {canonical}\n"


class TestComments:
    def test_own_line_and_trailing(self) -> None:
        assert body("#a\nlet x = 1#b\n#c") == "# a\nlet x = 1  # b\n# c\n"

    def test_in_a_statement_moves_above(self) -> None:
        assert body("let x = 1 + # one\n # two\n 2 # three\n") == "# one\n# two\nlet x = 1 + 2  # three\n"

    def test_in_a_head_moves_into_the_body(self) -> None:
        text = "attn 1\nmask # a\n m( # b\n x) # c\n { # d\n # e\n keep if x }"
        assert formatted(text) == "attn 1\n\nmask m(x) {  # d\n    # a\n    # b\n    # c\n    # e\n    keep if x\n}\n"

    def test_in_the_version_moves_above(self) -> None:
        assert formatted("attn # a\n 1 # b") == "# a\nattn 1  # b\n"

    def test_brace_in_a_comment(self) -> None:
        assert formatted("attn 1 variant v # {\n{ # }\n}") == "attn 1\n\nvariant v {  # }\n    # {\n}\n"

    def test_documentation_stays_attached(self) -> None:
        text = "attn 1\n# far\n\n# near\nvariant v {}\n#next\nvariant w {}"
        assert formatted(text) == "attn 1\n\n# far\n\n# near\nvariant v {}\n\n# next\nvariant w {}\n"

    def test_detached_documentation_stays_detached(self) -> None:
        assert formatted("attn 1\n# far\n\n\nvariant v {}") == "attn 1\n\n# far\n\nvariant v {}\n"

    def test_alone_in_a_body(self) -> None:
        assert formatted("attn 1 variant v { # a\n}") == "attn 1\n\nvariant v {  # a\n}\n"
        assert formatted("attn 1 variant v {\n # a\n}") == "attn 1\n\nvariant v {\n    # a\n}\n"

    def test_hash_in_a_string(self) -> None:
        assert formatted('attn 1 import "a#b" # c') == 'attn 1\n\nimport "a#b"  # c\n'


class TestAlignment:
    def test_inputs(self) -> None:
        assert (
            body("input a: f32\ninput bcd: i32\n\ninput ef: f32") == "input a:   f32\ninput bcd: i32\n\ninput ef: f32\n"
        )

    def test_trailing_comments_of_neighbours(self) -> None:
        assert body("let a = 1 # x\nlet bcd = 1 # y\nlet efghijk = 2\nlet l = 3 # z") == (
            "let a = 1    # x\nlet bcd = 1  # y\nlet efghijk = 2\nlet l = 3  # z\n"
        )


class TestLongLines:
    def test_broken_before_the_outermost_operators(self) -> None:
        terms = [f"some_long_name_{letter} >= another_name_{letter}" for letter in "abcd"]
        assert body("keep if " + " and ".join(terms)) == "keep if " + "\n        and ".join(terms) + "\n"

    def test_conditional(self) -> None:
        first, second, third = ("x" * 40, "y" * 40, "z" * 40)
        assert (
            body(f"let x = {first} if {second} else {third}") == f"let x = {first} if {second}\n        else {third}\n"
        )

    def test_comment_behind_the_last_line(self) -> None:
        terms = [letter * 40 for letter in "abc"]
        lines = body("let x = " + " + ".join(terms) + "  # note").splitlines()
        assert lines[-1] == f"        + {'c' * 40}  # note"

    def test_width(self) -> None:
        fits = "let x = " + "a" * 43 + " + " + "b" * 42  # 96 columns, and the indentation
        assert body(fits) == fits + "\n"
        assert body(fits + "b").count("\n") == 2


def test_syntax_errors_are_raised() -> None:
    with pytest.raises(AttnccError, match="expected `if`"):
        format_source(SourceFile("a.attn", "attn 1 variant v { keep x }"))


@pytest.mark.parametrize("path", sorted(resources.folder("specs").glob("*.attn")), ids=lambda path: path.stem)
def test_specs_that_ship(path: Path) -> None:
    """Whatever their layout, formatting them is stable and keeps their meaning and comments."""
    formatted(SourceFile.read(path).text)
