"""Places in a text as editors give them: a line and a column from 0, the column in the units that both sides agreed on.

Editors count UTF-16 code units unless they ask for others (LSP 3.17, `positionEncoding`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..source import SourceFile, Span

_UNITS: dict[str, Callable[[str], int]] = {
    "utf-8": lambda text: len(text.encode()),
    "utf-16": lambda text: len(text.encode("utf-16-le")) // 2,
    "utf-32": len,
}
_SURROGATE = re.compile("[\ud800-\udfff]")


def normal(text: str) -> str:
    """The text as attncc reads files: lines end with `\\n`. Lines and columns stay. Half a surrogate pair, which no
    file can hold, becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True)
class Places:
    """Offsets of one text as lines and columns, and back."""

    source: SourceFile
    encoding: str = "utf-16"

    def place(self, offset: int) -> tuple[int, int]:
        line, column = self.source.position(min(offset, len(self.source.text)))
        return line - 1, _UNITS[self.encoding](self.source.line(line)[: column - 1])

    def range(self, span: Span) -> tuple[tuple[int, int], tuple[int, int]]:
        return self.place(span.start), self.place(span.end)

    def offset(self, line: int, column: int) -> int:
        """The end of the line where the column is beyond it, the end of the text where the line is."""
        text = self.source.text
        if line >= text.count("\n") + 1:
            return len(text)
        start = len(text) - len(text.split("\n", line)[-1])
        used = 0
        for place, char in enumerate(self.source.line(line + 1)):
            used += _UNITS[self.encoding](char)
            if used > column:
                return start + place
        return start + len(self.source.line(line + 1))
