"""The table of contents at the top of a generated file: its parts, with the lines on which they begin.

Parts are the headings of templates (`// ------- title`); in them leaf files, what is printed for the variant, and the
steps of the papers' algorithms, by the comments that name them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

from .layout import COLUMNS

_HEADING = re.compile(r"// -{10,} (.+)")
_LEAF = re.compile(r"// ---- (\S+)$")
_DEFINITION = re.compile(r"(?:template <.*> )?(?:struct (\w+) \{|DEVICE [^(]*?\b(\w+)\($|DEVICE [^(]*?(\w+)\()")
_STEP = re.compile(r" *(?:\w+  )?// (FlashAttention[\w-]*, Algorithm \d.*|Flash-Decoding, step .*)")
_KERNEL = 'extern "C" __global__'
_PARAMETERS = "struct Params {"
_BEGINNINGS = ("// --", _KERNEL, _PARAMETERS)  # of all lines that begin a part: most lines need no other look


@dataclass
class _Part:
    title: str
    line: int
    members: list[tuple[str, int]] = field(default_factory=list)  # listed behind the title
    steps: list[tuple[str, int]] = field(default_factory=list)  # listed below it
    is_printed: bool = False  # for the variant: its definitions are members


def with_contents(text: str) -> str:
    """The text with its contents, behind the first lines of its header."""
    lines = text.split("\n")
    place = next(number for number, line in enumerate(lines) if not line.startswith("// "))
    parts = list(_parts(lines))
    table: list[str] = []
    while len(table) != len(table := ["//", *_table(parts, len(table))]):
        pass  # longer numbers may take more lines
    return "\n".join([*lines[:place], *table, *lines[place:]])


def _parts(lines: list[str]) -> Iterator[_Part]:
    part: _Part | None = None
    for number, line in enumerate(lines, start=1):
        begun = _title(line, part)
        if begun:
            if part is not None:
                yield part
            part = _Part(begun, number)
        if part is None:
            continue
        part.is_printed |= line == _PARAMETERS
        comment = "// " in line
        leaf, step = (_LEAF.match(line), _STEP.match(line)) if comment else (None, None)
        definition = _DEFINITION.match(line) if part.is_printed else None
        if leaf is not None:
            part.members.append((leaf[1], number))
        elif step is not None:
            part.steps.append((step[1], number))
        elif definition is not None and begun != "parameters":
            part.members.append((next(filter(None, definition.groups())), number))
    if part is not None:
        yield part


def _title(line: str, part: _Part | None) -> str:
    """Of the part that a line begins, if it does."""
    if not line.startswith(_BEGINNINGS):
        return ""
    heading = _HEADING.match(line)
    if heading is not None:
        return heading[1]
    if line.startswith(_KERNEL) and (part is None or part.title != "the kernel"):
        return "the kernel"
    if part is None and _LEAF.match(line):
        return "leaf code"
    if line == _PARAMETERS and (part is None or part.title == "leaf code"):
        return "parameters"
    return ""


def _table(parts: list[_Part], above: int) -> Iterator[str]:
    """Its lines, if so many come to stand above all parts."""
    yield "// Contents, by line:"
    for part in parts:
        members = ", ".join(f"{name}\u00a0{line + above}" for name, line in part.members)
        start = f"// {part.line + above:5}  "
        for text in textwrap.wrap(f"{part.title}{': ' if members else ''}{members}", COLUMNS - len(start)):
            yield f"{start}{text}".replace("\u00a0", " ")
            start = "//        "
        for name, line in part.steps:
            yield f"// {line + above:5}    {textwrap.shorten(name, COLUMNS - len('// 12345    '), placeholder=' ...')}"
