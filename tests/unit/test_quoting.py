"""What is written into other languages is read there as text, whatever it holds."""

from __future__ import annotations

import ast
import json
import re
import tokenize
from io import BytesIO

import pytest

import attncc
from attncc import quoting
from attncc.diagnostics import AttnccError
from attncc.source import SourceFile
from attncc.syntax.comments import comments
from tests.evil_texts import EVIL, NOT_UTF8

TEXTS = pytest.mark.parametrize("text", [*EVIL.values(), NOT_UTF8], ids=[*EVIL, "not_utf8"])


@TEXTS
def test_printable(text: str) -> None:
    shown = quoting.printable(text)
    assert shown.isprintable() and shown.encode()
    assert quoting.printable(shown) == shown


def test_what_can_be_read_stays() -> None:
    assert quoting.printable("Ünïcödé 漢字 🙂 \\n") == "Ünïcödé 漢字 🙂 \\n"
    assert quoting.printable("a\tb\xa0c\u3000d") == "a b c d"
    assert quoting.printable("\0\n\x1b\x85\u2028\u202e\U000e0001\udcff") == (
        "\\x00\\x0a\\x1b\\x85\\u2028\\u202e\\U000e0001\\xff"
    )


@TEXTS
@pytest.mark.parametrize("first", ["# {}", "#{}", "# Written by attncc from {}.", "# x\n# {}\n"])
def test_python_comment(text: str, first: str) -> None:
    code = f"{first.format(quoting.python_comment(text))}\nname = 'ä'\n".encode()
    encoding, _ = tokenize.detect_encoding(BytesIO(code).readline)
    assert encoding == "utf-8"
    (statement,) = ast.parse(code).body
    assert ast.unparse(statement) == "name = 'ä'"


@TEXTS
def test_python_docstring(text: str) -> None:
    (statement,) = ast.parse(f'"""{quoting.python_docstring(text)}\n"""\n').body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    assert statement.value.value == quoting.printable_lines(text) + "\n"


@TEXTS
def test_cuda(text: str) -> None:
    comment, file = quoting.cuda_comment(text), quoting.cuda_file(text)
    assert "\n" not in comment + file and comment.isprintable() and file.isprintable()
    assert not re.search(r"(\\|\?\?/)\s*$", comment)
    assert not set('"\\') & set(file) and "??" not in file


@TEXTS
def test_attn_comment(text: str) -> None:
    (found,) = comments(SourceFile("x.attn", f"keep if true  # {quoting.attn_comment(text)}\nkeep if false\n"))
    assert found.span.line == 1


@TEXTS
def test_json(text: str) -> None:
    shown = quoting.json_text({text: [text]}, indent=2)
    assert shown.isascii() and shown.replace("\n", "").isprintable()
    assert json.loads(shown) == {text: [text]}


@TEXTS
def test_markdown(text: str) -> None:
    shown = quoting.markdown(text)
    outside = re.sub(r"`[^`\n]*`", "", re.sub(r"\\[!-/:-@\[-`{-~]", "x", shown))
    assert not set(outside) & set("*_[]<>|&~`")
    assert not re.search(r"^\s*([#+=-]|\d+[.)]|    )", outside, re.M)


def test_markdown_keeps_code() -> None:
    assert quoting.markdown("`a * b` * c\n- `d\n e`") == "`a * b` \\* c\n\\- `d e`"


@pytest.mark.parametrize("spec", ["attn 1\n# \udcff\nvariant v {}\n", "a\0b.attn", f"{NOT_UTF8}.attn"])
def test_specs_that_no_file_can_be(spec: str) -> None:
    with pytest.raises(AttnccError, match="A511") as caught:
        attncc.parse(spec)
    assert str(caught.value).replace("\n", "").isprintable()
