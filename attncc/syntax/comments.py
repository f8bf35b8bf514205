"""The comments of a file: the parser skips them, documentation and the formatter read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..source import SourceFile, Span

# A `#` inside a string starts no comment.
_COMMENT = re.compile(r'"[^"\n]*"|(?P<comment>#[^\n]*)')


@dataclass(frozen=True, slots=True)
class Comment:
    """From `#` to the end of its line; `own_line` if nothing stands before it there."""

    span: Span
    own_line: bool

    @property
    def text(self) -> str:
        """The canonical form: `# ` and what was written, without blanks at its end."""
        text = self.span.text[1:].rstrip()
        return f"#{text}" if text[:1] in ("", " ", "#", "!", "\t") else f"# {text}"


def comments(source: SourceFile) -> Iterator[Comment]:
    """All comments, top to bottom."""
    for match in _COMMENT.finditer(source.text):
        if match["comment"] is not None:
            line_start = source.text.rfind("\n", 0, match.start()) + 1
            own_line = not source.text[line_start : match.start()].strip()
            yield Comment(Span(source, match.start(), match.end()), own_line)


def documentation(source: SourceFile, offset: int) -> str:
    """The comment block directly above an item that begins its line at `offset`, without its `#`s."""
    line, column = source.position(offset)
    if source.line(line)[: column - 1].strip():
        return ""
    last = line - 1
    first = last
    while first >= 1 and source.line(first).lstrip().startswith("#"):
        first -= 1
    return "\n".join(_words(source.line(number)) for number in range(first + 1, last + 1))


def _words(line: str) -> str:
    return line.strip().removeprefix("#").removeprefix(" ")
