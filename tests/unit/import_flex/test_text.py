from __future__ import annotations

import ast
from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.import_flex.text import parse_python, read_python
from attncc.source import SourceFile


def test_spans_count_characters_and_end_with_the_first_line_of_a_function(tmp_path: Path) -> None:
    path = tmp_path / "mods.py"
    path.write_bytes("x = 'é→' + (1 +\r\n  2)\r\ndef f(a):\r\n    return a\r\n".encode())
    text = read_python(path)
    assign, function = text.statements
    assert isinstance(assign, ast.Assign) and isinstance(assign.value, ast.BinOp)
    assert text.span(assign.value.left).text == "'é→'"
    assert text.span(assign.value.right).text == "1 +\n  2"
    assert text.span(function).text == "def f(a):"
    assert str(text.span(function)).endswith("mods.py:3:1")


def test_encodings_that_python_knows(tmp_path: Path) -> None:
    path = tmp_path / "mods.py"
    path.write_bytes("# -*- coding: latin-1 -*-\nä = 'ü'\n".encode("latin-1"))
    assert read_python(path).source.text.endswith("ä = 'ü'\n")
    path.write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert read_python(path).statements


@pytest.mark.parametrize("content", [b"x = '\xff'\n", b"# coding: klingon\n"])
def test_what_is_no_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mods.py"
    path.write_bytes(content)
    with pytest.raises(AttnccError, match="A701"):
        read_python(path)


@pytest.mark.parametrize("text", ["x = ", "x = 1\n  y", "\0", "(" * 1000, "x = '''", "def f(:\n"])
def test_what_is_no_python(text: str) -> None:
    with pytest.raises(AttnccError, match="A702") as raised:
        parse_python(SourceFile("mods.py", text))
    assert raised.value.diagnostics[0].render()
