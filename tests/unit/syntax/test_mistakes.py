"""Each sort of mistake: its code, the place that is marked, and words that help. One mistake, one diagnostic."""

from __future__ import annotations

import re

import pytest

from attncc import resources
from attncc.diagnostics import AttnccError, Diagnostic
from attncc.source import SourceFile
from attncc.syntax.parser import parse


def diagnose(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(AttnccError) as caught:
        parse(SourceFile("a.attn", text))
    return caught.value.diagnostics


def only(text: str) -> Diagnostic:
    diagnostics = diagnose(text)
    assert len(diagnostics) == 1, str(AttnccError(diagnostics))
    return diagnostics[0]


# (statement of a variant, code, marked text, part of the message or help)
STATEMENTS = [
    ("keep q_idx > kv_idx", "A007", "q_idx", "expected `if` after `keep`"),
    ("keep = q_idx > kv_idx", "A007", "=", "keep if"),
    ("keep if a && b", "A003", "&&", "write `and`"),
    ("keep if a || b", "A003", "||", "write `or`"),
    ("keep if !a", "A002", "!", "write `not`"),
    ("keep if a => b", "A003", "=>", "write `>=`"),
    ("keep if a =< b", "A003", "=<", "write `<=`"),
    ("keep if a <> b", "A003", "<>", "write `!=`"),
    ("keep if a === b", "A003", "===", "write `==`"),
    ("keep if a !== b", "A003", "!==", "write `!=`"),
    ("keep if a = b", "A003", "=", "write `==`"),
    ("let x == 3", "A003", "==", "write `=`"),
    ("let x := 3", "A003", ":=", "write `=`"),
    ("let x = a -> b", "A003", "->", "nothing has a return type"),
    ("score -= 1", "A003", "-=", "score = score - …"),
    ("score /= 2", "A003", "/=", "score = score / …"),
    ("let x = a \\ 2", "A002", "\\", "over several lines"),
    ("let x = a ** 2", "A003", "**", "x * x"),
    ("score += 1", "A003", "+=", "score = score + …"),
    ("score *= 2", "A003", "*=", "score = score * …"),
    ("let x = a ? b", "A002", "?", "a if condition else b"),
    ("let x = 1;", "A002", ";", "remove it"),
    ("let x = a.b", "A002", ".", "attributes"),
    ("let x = 1 $ 2", "A002", "$", "no meaning"),
    ("let é = 1", "A002", "é", "(U+00E9)"),
    ("let x\u00a0= 1", "A002", "\u00a0", "no-break space (U+00A0)"),
    ("let x = 1\0", "A002", "\0", "U+0000"),
    ("let x = 'a'", "A002", "'a'", "double quotes"),
    ("let if = 3", "A004", "if", "is a keyword"),
    ("sink score", "A004", "score", "is a keyword"),
    ("let x = input + 1", "A004", "input", "is a keyword"),
    ("let x = a and and b", "A001", "and", "expected an expression"),
    ("let x = 2x", "A009", "2x", "begin with a digit"),
    ("let x = 0x", "A009", "0x", "begin with a digit"),
    ("let x = 1.5.2", "A009", "1.5.2", "not a number"),
    ("let x = (a + b", "A005", "(", "never closed"),
    ("let x = f(a, b", "A005", "(", "never closed"),
    ("let x = a[b", "A005", "[", "never closed"),
    ("let x = (a]", "A005", "(", "never closed"),
    ("let x = a)", "A005", ")", "closes nothing"),
    ("let x = a]", "A005", "]", "closes nothing"),
    ("let x =", "A007", "=", "expected an expression after `=`"),
    ("let x = a +", "A007", "+", "expected an expression after `+`"),
    ("let", "A007", "let", "expected a name after `let`"),
    ("let x: int = 3", "A007", ":", "let name = value"),
    ("let x = a if b", "A007", "if", "`if` has no `else`"),
    ("let x = (a if b)", "A007", "if", "`if` has no `else`"),
    ("let x = a if (b if c else d)", "A007", "if", "`if` has no `else`"),
    ("let x = a if (b if c)\nelse d", "A007", "if", "`if` has no `else`"),
    ("if a", "A007", "if", "write `keep if`"),
    ("const n = 3", "A007", "=", "const name: int"),
    ("const n int = 3", "A001", "int", "const name: int"),
    ("input x f32", "A001", "f32", "input name: f32"),
    ("input x[head]", "A007", "[", "input name: f32"),
    ("input x: f32[]", "A001", "]", "expected an expression or `_`"),
    ("let x = a b", "A001", "b", "expected an operator"),
    ("let x = scale b", "A001", "b", "let name = value"),
    ("score = scale b", "A001", "b", "score = value"),
    ("scale a b", "A001", "b", "scale value"),
    ("input x: f32[head] if", "A008", "if", "cannot stand here"),
    ("let x = f(a b)", "A001", "b", "expected an operator, `)` or `,`"),
    ("let x = f(a,)", "A001", ")", "expected an expression"),
    ("let x = _", "A001", "_", "axis of any length"),
    ('let x = "a"', "A001", '"a"', "text in quotes stands after `import`"),
    ("keep if any(a for i in 8)", "A007", "8", "for i in range(8)"),
    ("keep if any(a for in range(8))", "A004", "in", "is a keyword"),
    ("sink 3", "A001", "3", "sink input_name"),
    ("normalize softmax none", "A008", "none", "begins nothing"),
    ("kep if a", "A008", "kep", "did you mean `keep`?"),
    ("attn 1", "A006", "attn", "above everything else"),
]

# (items below `attn 1`, code, marked text, part of the message or help)
ITEMS = [
    ("mask causal = a > b", "A007", "=", "mask name() ="),
    ("mask m(a,) = a", "A001", ")", "expected a name"),
    ("mask m() { score = 1 }", "A008", "score", "in variants"),
    ("mask m() { const n: int = 1 }", "A008", "const", "parameters instead"),
    ("variant {}", "A001", "{", "expected a name"),
    ("variant v", "A001", "", "variant name {"),
    ("variant if {}", "A004", "if", "is a keyword"),
    ("variant v { let x = 1", "A005", "{", "never closed"),
    ("variant v {\nvariant w {}", "A005", "{", "never closed"),
    ("variant v {}}", "A005", "}", "closes nothing"),
    ("varient v { let x = 1 }", "A008", "varient", "did you mean `variant`?"),
    ("variant v {} import masks", "A008", "import", "above the first mask"),
    ("let x = 3", "A008", "let", "outside of a variant"),
    ('import "masks.attn', "A002", '"masks.attn', "closing quote"),
    ("import 3", "A001", "3", "import masks"),
    ("schedule s on sm_80 {}", "A007", "on", "schedule name for variant"),
    ("schedule s for v {}", "A007", "{", "schedule name for variant"),
    ("schedule s {}", "A007", "{", "schedule name for variant"),
    ("schedule s for v decode sm_80 {}", "A001", "sm_80", "expected `on`"),
    ("schedule s for v on sm_80 { a = {1 2} }", "A001", "2", "expected `,` or `}`"),
    ("schedule s for v on sm_80 { a = {} }", "A001", "}", "a whole number"),
    ("schedule s for v on sm_80 { a = 2.5 }", "A001", "2.5", "a whole number"),
    ("schedule s for v on sm_80 { a = b = 2 }", "A007", "=", "expected a value"),
    ("schedule s for v on sm_80 {\na = 1\nlet x = 2 }", "A001", "let", "knob = 128"),
    ("schedule s for v on sm_80 { a }", "A001", "}", "expected `=`"),
]


def check(diagnostic: Diagnostic, code: str, marked: str, words: str) -> None:
    assert diagnostic.code == code
    assert diagnostic.span.text == marked
    assert words in f"{diagnostic.message} {diagnostic.help} {diagnostic.label}"
    assert diagnostic.help or diagnostic.label


@pytest.mark.parametrize(("statement", "code", "marked", "words"), STATEMENTS, ids=[case[0] for case in STATEMENTS])
def test_statement(statement: str, code: str, marked: str, words: str) -> None:
    """The statements around the mistake are read: nothing is said about them."""
    check(
        only(f"attn 1\nvariant v {{\nlet before = 1\n{statement}\nlet after = 2\n}}\nvariant w {{}}"),
        code,
        marked,
        words,
    )


@pytest.mark.parametrize(("item", "code", "marked", "words"), ITEMS, ids=[case[0] for case in ITEMS])
def test_item(item: str, code: str, marked: str, words: str) -> None:
    check(only(f"attn 1\n{item}\n"), code, marked, words)


@pytest.mark.parametrize("text", ["", "# nothing\n", "variant v {}", "mask m() = true", "let x = 3"])
def test_version_is_missing(text: str) -> None:
    first = diagnose(text)[0]
    assert (first.code, first.help) == ("A006", "write `attn 1` above everything else")
    assert first.edit is not None
    assert first.edit.text == "attn 1\n\n"


def test_byte_order_mark() -> None:
    check(only("\ufeffattn 1\nvariant v {}"), "A002", "\ufeff", "without a byte order mark")


@pytest.mark.parametrize("text", ["attn", "attn variant v {}", "attn 1.5\nvariant v {}", "attn one"])
def test_version_without_number(text: str) -> None:
    check(only(text), "A006", only(text).span.text, "expected the language version after `attn`")


def test_unclosed_bracket_shows_both_places() -> None:
    diagnostic = only("attn 1 variant v {\nlet x = (1 + 2\nlet y = 3\n}")
    assert [label.span.text for label in diagnostic.labels] == ["let"]
    assert (diagnostic.span.line, diagnostic.labels[0].span.line) == (2, 3)


def test_score_line_behind_an_open_bracket() -> None:
    """`score` could go on with the expression; `score =` cannot."""
    check(only("attn 1 variant v {\nlet x = (1 +\nscore = 2\n}"), "A005", "(", "never closed")
    check(only("attn 1 variant v {\nlet x = 1 +\nscore = 2\n}"), "A007", "+", "expected an expression after `+`")


def test_end_of_file_is_shown_on_the_last_line_with_text() -> None:
    diagnostic = only("attn 1\nvariant v {\n\n\n")
    assert diagnostic.labels[0].span.line == 2


@pytest.mark.parametrize("code", [f"A{number:03}" for number in range(1, 11)])
def test_page_shows_what_attncc_says(code: str) -> None:
    """The example in `docs/errors/` gives the message and help that the page quotes."""
    page = resources.folder("grammars").parent.joinpath("docs", "errors", f"{code}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .+\n)+", page, re.MULTILINE)
    examples = {"A006": "variant v {}", "A010": f"attn 1 variant v {{ let x = {'(' * 200} }}"}
    text = examples.get(code) or f"attn 1\nvariant v {{\n{blocks[0]}\n}}"
    said = str(AttnccError(diagnose(text)))
    for line in blocks[-1].splitlines():
        assert line.strip() in said
