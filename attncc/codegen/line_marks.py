"""`#line` around the user's expressions: NVRTC and profilers point into the `.attn` file there, and only there."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from ..quoting import cuda_file
from ..source import Span

WIDTH = 120  # columns of the generated files
INDENT = " " * 4

RESTORE = "#line restore"

_SHORT_ARGUMENTS = re.compile(r"\([^()]{1,40}\)")
_NO_BREAK = "\u00a0"  # no text of a variant has this: names are ASCII


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a function body, and the place in the `.attn` file that it comes from."""

    text: str
    span: Span | None = None


def shown_path(path: str) -> str:
    """The path of a source as generated files show it, the same on every machine: relative, or just the name."""
    pure = PurePath(path)
    inside = not pure.is_absolute() and ".." not in pure.parts
    return pure.as_posix() if inside else pure.name


def marked(lines: Iterable[Line]) -> Iterator[str]:
    """The lines with `#line` where their place changes, and a mark that `restored` resolves at the end."""
    place: tuple[str, int] | None = None
    for line in lines:
        wanted = None if line.span is None else (shown_path(line.span.source.path), line.span.line)
        if wanted is not None and wanted != place:
            yield f'#line {wanted[1]} "{cuda_file(wanted[0])}"'
        elif wanted is None and place is not None:
            yield RESTORE
        texts = _wrapped(line.text)
        yield from texts
        place = None if wanted is None else (wanted[0], wanted[1] + len(texts))
    if place is not None:
        yield RESTORE


def _wrapped(text: str) -> list[str]:
    """A statement on as many lines as it needs. Short arguments of a call stay together."""
    together = _SHORT_ARGUMENTS.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        together,
        WIDTH,
        initial_indent=INDENT,
        subsequent_indent=2 * INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def restored(text: str, name: str) -> str:
    """The whole file, in which each mark says the number of its next line and the name of the file."""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line == RESTORE:
            lines[number - 1] = f'#line {number + 1} "{cuda_file(name)}"'
    return "\n".join(lines)
