"""Source text to AST. Errors are collected, so that one run reports every mistake of a file."""

from __future__ import annotations

from lark.exceptions import UnexpectedToken

from ..diagnostics import AttnccError, Diagnostic
from ..source import SourceFile, Span
from . import ast
from .builder import build
from .grammar import grammar


def parse(source: SourceFile) -> ast.Module:
    """The syntax tree of a file; AttnccError with all of its syntax errors."""
    try:
        return build(grammar().parse(source.text), source)
    except UnexpectedToken as error:
        span = Span(source, error.token.start_pos or 0, error.token.end_pos or 0)
        raise AttnccError(Diagnostic("A001", f"unexpected {error.token}", span)) from None
