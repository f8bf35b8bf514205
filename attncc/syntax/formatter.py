"""The one way in which a `.attn` file is laid out: `attncc fmt`.

Printed anew from the AST. All that is kept of the old layout is comments and blank lines, of which one at most stays.
A comment stays on its own line, or behind what it stands behind; one in the middle of a statement moves above it, one
in the head of an item into its body. Inputs, settings and trailing comments are aligned within their paragraph.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..source import SourceFile
from . import ast, printer
from .comments import Comment, comments
from .parser import parse
from .tokens import LANGUAGE_VERSION

_INDENT = 4
_VERSION = re.compile(r"attn(?:\s|#[^\n]*)*\d+")
_TO_BRACE = re.compile(r"(?:[^{#]|#[^\n]*)*\{")


def format_source(source: SourceFile) -> str:
    """The canonical text of a file; AttnccError if it has syntax errors.

    Formatting it again changes nothing, and it parses to the same AST.
    """
    module = parse(source)
    version = _VERSION.match(source.text, module.span.start)
    assert version is not None
    first = ast.Node(span=replace(module.span, end=version.end()))
    nodes = (first, *module.imports, *module.items)
    lines = _Layout(source, tuple(comments(source))).block(nodes, 0, len(source.text), 0)
    return "".join(f"{line}\n" for paragraph in _paragraphs(lines) for line in _text(paragraph))


@dataclass(frozen=True)
class _Line:
    """A statement (its code may have further lines), an item's first or last line, or a comment on its own."""

    code: tuple[str, ...] = ()
    head: str = ""  # before the code: up to the column that lines of the same sort share
    sort: type[ast.Node] | None = None
    comment: str = ""
    indent: int = 0
    blank_above: bool = False


@dataclass(frozen=True)
class _Layout:
    source: SourceFile
    comments: tuple[Comment, ...]

    def block(self, nodes: Sequence[ast.Node], start: int, end: int, indent: int) -> list[_Line]:
        """The lines of nodes that follow one another, and of the comments among them, between two offsets."""
        lines: list[_Line] = []
        previous: ast.Node | None = None
        limits = [*(node.span.start for node in nodes[1:]), end]
        for node, limit in zip(nodes, limits, strict=False):
            above = self.between(start, node.span.start)
            leading = self.own_lines(above, start, indent)
            start = above[-1].span.end if above else start
            first, *rest = self.node(node, indent)
            leading.append(replace(first, blank_above=self.blank_between(start, node.span.start)))
            if _stands_apart(previous) or (_stands_apart(node) and not any(line.blank_above for line in leading)):
                leading[0] = replace(leading[0], blank_above=True)
            lines += leading + rest
            start = self.trail(lines, node.span.end, limit)
            previous = node
        lines += self.own_lines(self.between(start, end), start, indent)
        return [replace(lines[0], blank_above=False), *lines[1:]] if lines else []

    def node(self, node: ast.Node, indent: int) -> list[_Line]:
        """A node's own lines, below them the comments inside of it; an item's body is a block again."""
        if isinstance(node, ast.Variant | ast.Schedule) or (
            isinstance(node, ast.Mask) and isinstance(node.body, tuple)
        ):
            return self.item(node)
        inside = self.own_lines(self.between(node.span.start, node.span.end), node.span.end, indent)
        head, code = _print(node, indent)
        return [*inside, _Line(tuple(code), head, type(node) if head else None, indent=indent)]

    def item(self, item: ast.Mask | ast.Variant | ast.Schedule) -> list[_Line]:
        """`variant name {`, the body, and `}`; on one line if there is nothing in it."""
        brace = _TO_BRACE.match(self.source.text, item.span.start)
        assert brace is not None
        opening = [_Line((printer.opening(item) + "{",))]
        start = self.trail(opening, brace.end(), item.span.end)
        in_head = self.own_lines(self.between(item.span.start, brace.end()), brace.end(), _INDENT)
        body = in_head + self.block(_body(item), start, item.span.end - 1, _INDENT)
        if not body and not opening[0].comment:
            return [_Line((printer.opening(item) + "{}",))]
        return [*opening, *body, _Line(("}",))]

    # ---------------------------------------------------------------- comments and blank lines

    def between(self, start: int, end: int) -> tuple[Comment, ...]:
        first, last = (bisect_left(self.comments, at, key=lambda comment: comment.span.start) for at in (start, end))
        return self.comments[first:last]

    def own_lines(self, found: Sequence[Comment], start: int, indent: int) -> list[_Line]:
        """Comments on lines of their own; what is laid out before them ends at `start`."""
        ends = [start, *(comment.span.end for comment in found)]
        return [
            _Line(comment=comment.text, indent=indent, blank_above=self.blank_between(end, comment.span.start))
            for end, comment in zip(ends, found, strict=False)
        ]

    def trail(self, lines: list[_Line], end: int, limit: int) -> int:
        """Puts the comment that follows `end` on its line, if one does, behind the last line; returns where it ends."""
        for comment in self.between(end, limit)[:1]:
            if not self.source.text[end : comment.span.start].strip(" \t"):
                lines[-1] = replace(lines[-1], comment=comment.text)
                return comment.span.end
        return end

    def blank_between(self, start: int, end: int) -> bool:
        return self.source.text[start:end].count("\n") > 1


def _print(node: ast.Node, indent: int) -> tuple[str, list[str]]:
    match node:
        case ast.Import():
            return "", [printer.import_line(node)]
        case ast.Mask() | ast.Function():
            assert not isinstance(node.body, tuple)
            return "", printer.lines(f"{printer.opening(node)}= ", node.body, indent)
        case ast.Setting() | ast.Const() | ast.Table() | ast.Input() | ast.Let() | ast.Keep() | ast.Score():
            return printer.statement(node, indent)
        case ast.Scale() | ast.Sink() | ast.Normalize() | ast.Dropout():
            return printer.statement(node, indent)
        case _:
            return "", [f"attn {LANGUAGE_VERSION}"]


def _body(item: ast.Mask | ast.Variant | ast.Schedule) -> Sequence[ast.Node]:
    if isinstance(item, ast.Mask):
        assert isinstance(item.body, tuple)
        return item.body
    return item.statements if isinstance(item, ast.Variant) else item.settings


def _stands_apart(node: ast.Node | None) -> bool:
    """Blank lines surround the version and every item that has a body."""
    has_body = isinstance(node, ast.Mask) and isinstance(node.body, tuple)
    return has_body or isinstance(node, ast.Variant | ast.Schedule) or type(node) is ast.Node


# -------------------------------------------------------------------- lines to text


def _paragraphs(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Lines that no blank line and no change of indentation parts."""
    paragraph: list[_Line] = []
    for line in lines:
        if paragraph and (line.blank_above or line.indent != paragraph[-1].indent):
            yield paragraph
            paragraph = []
        paragraph.append(line)
    yield paragraph


def _text(paragraph: Sequence[_Line]) -> Iterator[str]:
    if paragraph[0].blank_above:
        yield ""
    heads = dict.fromkeys((line.sort for line in paragraph), 0)
    for line in paragraph:
        heads[line.sort] = max(heads[line.sort], len(line.head))
    rows = [_row(line, heads[line.sort]) for line in paragraph]
    columns = _comment_columns(paragraph, [len(row[-1]) for row in rows])
    for row, line, column in zip(rows, paragraph, columns, strict=True):
        yield from row[:-1]
        yield f"{row[-1]:<{column}}  {line.comment}" if line.code and line.comment else row[-1]


def _comment_columns(paragraph: Sequence[_Line], widths: Sequence[int]) -> list[int]:
    """How wide the code of each line is made before its comment: as wide as the widest of those around it.

    A line without a comment parts those above from those below, unless it stands in an aligned list itself.
    """
    columns: list[int] = []
    for group in _groups(paragraph):
        widest = max(
            (widths[index] for index in group if paragraph[index].comment and paragraph[index].code), default=0
        )
        columns += [widest] * len(group)
    return columns


def _groups(paragraph: Sequence[_Line]) -> Iterator[list[int]]:
    group: list[int] = []
    for index, line in enumerate(paragraph):
        group.append(index)
        if not line.head and not (line.code and line.comment):
            yield group
            group = []
    yield group


def _row(line: _Line, width: int) -> list[str]:
    """The text of a line, without the comment behind its code."""
    blanks = " " * line.indent
    if not line.code:
        return [blanks + line.comment]
    head = f"{line.head:<{width}} " if line.head else ""
    return [blanks + head + line.code[0], *(blanks + code for code in line.code[1:])]
