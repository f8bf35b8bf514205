"""Python text that is read and never run: a file, or the expression of a target, with its syntax tree and its spans."""

from __future__ import annotations

import ast
import tokenize
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from ..diagnostics import AttnccError, Diagnostic
from ..source import SourceFile, Span

TARGET = "command line"  # where the text of a target stands


@dataclass(frozen=True, eq=False)
class PythonText:
    """A source, and the tree that `ast` makes of it (an expression's own tree, for a target)."""

    source: SourceFile
    tree: ast.Module | ast.Expression

    @property
    def statements(self) -> list[ast.stmt]:
        return self.tree.body if isinstance(self.tree, ast.Module) else []

    def span(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> Span:
        """Where a node stands; of a function or class only its first line."""
        start = self._offset(node.lineno, node.col_offset)
        end_line, end_column = node.end_lineno, node.end_col_offset
        assert end_line is not None and end_column is not None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            end_line, end_column = node.lineno, len(self.source.line(node.lineno).encode())
        return Span(self.source, start, self._offset(end_line, end_column))

    def _offset(self, line: int, byte_column: int) -> int:
        """`ast` counts columns in bytes of UTF-8."""
        return self._line_starts[line - 1] + len(self.source.line(line).encode()[:byte_column].decode())

    @cached_property
    def _line_starts(self) -> list[int]:
        return _line_starts(self.source)


def _line_starts(source: SourceFile) -> list[int]:
    return [0, *accumulate(len(line) + 1 for line in source.text.split("\n"))]


def read_python(path: Path) -> PythonText:
    """A file, decoded as Python does. AttnccError A701 if it can't be read, A702 if it isn't Python."""
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text in the encoding that it names"
        raise AttnccError(
            Diagnostic("A701", f"{path} can't be read: {reason}", help="write FILE.py:function, as in masks.py:causal")
        ) from None
    return parse_python(SourceFile(str(path), text))


def parse_python(source: SourceFile, *, expression: bool = False) -> PythonText:
    """The tree of a source. AttnccError A702 where it isn't Python."""
    try:
        tree = ast.parse(source.text, mode="eval" if expression else "exec")
    except SyntaxError as error:
        line = min(max(error.lineno or 1, 1), source.text.count("\n") + 1)
        start = _line_starts(source)[line - 1] + min(max((error.offset or 1) - 1, 0), len(source.line(line)))
        raise _not_python(error.msg, Span(source, start, start + 1)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise _not_python(str(error) or "too deeply nested", Span(source, 0, 1)) from None
    assert isinstance(tree, ast.Module | ast.Expression)
    return PythonText(source, tree)


def _not_python(reason: str, span: Span) -> AttnccError:
    return AttnccError(Diagnostic("A702", f"this is not Python: {reason}", span, help="mend the Python text first"))
