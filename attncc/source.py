"""Source text and positions in it. Every AST and IR node and every diagnostic points here."""

from __future__ import annotations

import errno
import os
import re
import stat
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from .quoting import printable

MAX_BYTES = 2**17  # of one file; attncc is to answer within seconds, whatever it holds


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
        """Reads a UTF-8 file; what `read_text` raises is the caller's to report."""
        return cls(str(path), read_text(path))

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
        lines = [re.sub(r"#.*", "", line).strip() for line in self.text.split("\n")]
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
        return f"{printable(self.source.path)}:{self.line}:{self.column}"


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, its lines ended by `\\n`. UnicodeDecodeError if it is none.

    OSError if it can't be read, is larger than MAX_BYTES, or is a folder, a device or a pipe: those may never end.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:  # a pipe that nobody writes to doesn't block: O_NONBLOCK
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        found = file.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_BYTES} bytes")
    return found.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
