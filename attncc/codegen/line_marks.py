"""`#line` around the user's expressions: NVRTC and profilers point into the `.attn` file there, and only there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from ..source import Span

_RESTORE = "#line restore"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a function body, and the place in the `.attn` file that it comes from."""

    text: str
    span: Span | None = None


def shown_path(path: str) -> str:
    """The path of a source as generated files show it, the same on every machine: relative, or just the name."""
    pure = PurePath(path)
    inside = not pure.is_absolute() and ".." not in pure.parts
    return (pure.as_posix() if inside else pure.name).replace("\\", "/").replace('"', "'")


def marked(lines: Iterable[Line]) -> Iterator[str]:
    """The lines with `#line` where their place changes, and a mark that `restored` resolves at the end."""
    place: tuple[str, int] | None = None
    for line in lines:
        wanted = None if line.span is None else (shown_path(line.span.source.path), line.span.line)
        if wanted is not None and wanted != place:
            yield f'#line {wanted[1]} "{wanted[0]}"'
        elif wanted is None and place is not None:
            yield _RESTORE
        yield f"    {line.text}"
        place = None if wanted is None else (wanted[0], wanted[1] + 1)
    if place is not None:
        yield _RESTORE


def restored(text: str, name: str) -> str:
    """The whole file, in which each mark says the number of its next line and the name of the file."""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line == _RESTORE:
            lines[number - 1] = f'#line {number + 1} "{name}"'
    return "\n".join(lines)


def source_line(span: Span) -> str:
    """A statement's source on one line, without its comments."""
    lines = [re.sub(r"#.*", "", line).strip() for line in span.text.splitlines()]
    return " ".join(line for line in lines if line)
