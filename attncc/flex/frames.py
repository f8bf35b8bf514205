"""Where in the user's Python a mod is, while it runs: for messages, and for the names of values."""

from __future__ import annotations

import dis
import linecache
import sys
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from ..source import SourceFile, Span

_HERE = str(Path(__file__).parent)
_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_NAME")


def here(outermost: CodeType, torch_folder: str) -> tuple[Span, str | None]:
    """The expression of the user that runs, and the local variable that its value goes to, if it goes to one.

    Frames of torch and of attncc are passed over, up to the one that runs `outermost`. Where all are such, it is the
    last one of torch (a mod of torch's own).
    """
    frame: FrameType | None = sys._getframe(1)
    seen = None
    while frame is not None and frame.f_code is not outermost:
        path = frame.f_code.co_filename
        if not path.startswith(_HERE):
            seen = frame
            if not path.startswith(torch_folder):
                break
        frame = frame.f_back
    if seen is None:
        return NOWHERE, None
    return span(seen.f_code, seen.f_lasti), _stored(seen.f_code).get(seen.f_lasti)


def span(code: CodeType, offset: int = -1) -> Span:
    """The text of the instruction at an offset of a function, or the function's first line."""
    file = source(code.co_filename)
    positions = list(code.co_positions())
    line, end_line, start, end = positions[offset // 2] if 0 <= offset // 2 < len(positions) else (None,) * 4
    if line is None or end_line is None or start is None or end is None:
        return line_span(file, line or code.co_firstlineno)
    return Span(file, _place(file, line, start), _place(file, end_line, end))


def first_line(function: Any) -> Span:
    """Where a function begins; of a method or a `partial` the function behind it."""
    while not isinstance(function, FunctionType):
        function = getattr(function, "func", None) or getattr(function, "__func__", None)
        if function is None:
            return NOWHERE
    file = source(function.__code__.co_filename)
    return line_span(file, function.__code__.co_firstlineno)


def line_span(file: SourceFile, line: int) -> Span:
    text = _line(file, line)
    start = _place(file, line, 0) + len(text) - len(text.lstrip())
    return Span(file, start, max(start + 1, start + len(text.strip())))


@cache
def source(path: str) -> SourceFile:
    """A file of Python, without text where there is none to read (as in `exec`)."""
    return SourceFile(path, "".join(linecache.getlines(path)))


NOWHERE = Span(SourceFile("<mod>", ""), 0, 0)


@cache
def _starts(file: SourceFile) -> list[int]:
    return [0, *accumulate(len(line) + 1 for line in file.text.split("\n"))]


def _line(file: SourceFile, number: int) -> str:
    return file.line(number) if number < len(_starts(file)) else ""


def _place(file: SourceFile, line: int, byte: int) -> int:
    """The character offset of a byte of a line: Python counts columns in bytes of UTF-8."""
    if line >= len(_starts(file)):
        return 0
    return _starts(file)[line - 1] + len(file.line(line).encode()[:byte].decode(errors="ignore"))


@cache
def _stored(code: CodeType) -> dict[int, str]:
    """For the offset of each instruction whose value goes straight to a local variable, its name."""
    found = {}
    instructions = list(dis.get_instructions(code))
    for before, after in pairwise(instructions):
        if after.opname.startswith(_STORES):
            name = after.argval[0] if isinstance(after.argval, tuple) else after.argval
            found[before.offset] = str(name)
    return found
