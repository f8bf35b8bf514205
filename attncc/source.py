"""Source text and positions in it. Every AST and IR node and every diagnostic points here."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class SourceFile:
    """One `.attn` text and the path it is shown under."""

    path: str
    text: str
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0]
        starts.extend(i + 1 for i, char in enumerate(self.text) if char == "\n")
        object.__setattr__(self, "_line_starts", tuple(starts))

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """Reads a UTF-8 file; OSError and UnicodeDecodeError are the caller's to report."""
        return cls(str(path), path.read_text(encoding="utf-8"))

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its newline."""
        start = self._line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end]


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets in one source file."""

    source: SourceFile
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def one_line(self) -> str:
        """The text on one line, without its comments."""
        lines = [re.sub(r"#.*", "", line).strip() for line in self.text.splitlines()]
        return " ".join(line for line in lines if line)

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    def holds(self, other: Span) -> bool:
        """Whether the other lies within this span, in the same source."""
        return self.source == other.source and self.start <= other.start and other.end <= self.end

    def to(self, other: Span) -> Span:
        """The smallest span that holds both."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))

    def __str__(self) -> str:
        return f"{self.source.path}:{self.line}:{self.column}"
