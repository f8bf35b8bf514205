"""Text from outside (specs, paths, names) as it is written into other languages: one function for each of them.

Whatever generated files, packages and messages hold of such text goes through here, so that none of it can become
code, end a comment, or move a terminal's cursor.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Patterns are compiled when they are first used: calls need none of them.
_CODING = r"coding(?=[:=])"


def printable(text: str) -> str:
    """One line of characters that can be seen. Blanks of all kinds become ` `; what else can't be printed becomes an
    escape: control characters, line ends, marks that turn the direction of writing, bytes that weren't UTF-8."""
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if char in "\t\f\v" or (code > 127 and char.isspace() and char not in "\x85\u2028\u2029"):
        return " "
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a path, as Python holds it
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def printable_lines(text: str) -> str:
    """The same of each line."""
    return "\n".join(map(printable, text.split("\n")))


def python_comment(text: str) -> str:
    """What may stand behind `#`, also in the first lines of a file, where Python looks for an encoding."""
    return re.sub(_CODING, r"coding ", printable(text))


def python_docstring(text: str) -> str:
    """What may stand between triple quotes, on lines of their own."""
    return printable_lines(text).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def cuda_comment(text: str) -> str:
    """What may stand behind `//`: it doesn't go on in the next line, be it by a trigraph."""
    shown = printable(text).rstrip().replace("??", "? ?")
    return f"{shown}." if shown.endswith("\\") else shown


def cuda_file(text: str) -> str:
    """What may stand in `#line` between quotes: NVRTC repeats it in PTX as it is, so without quotes and backslashes."""
    return printable(text).replace("\\", "/").replace('"', "'").replace("??", "?_")


def attn_comment(text: str) -> str:
    """What may stand behind `#` in a `.attn` file."""
    return printable(text)


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON of ASCII characters alone."""
    return json.dumps(value, indent=indent)


_INLINE = r"([\\`*_\[\]<>|&~])"
_AT_LINE_START = r"(?m)^(?=[#+=-])|(?<=^\d)(?=[.)])|(?<=^\d\d)(?=[.)])"
_CODE = r"`((?:[^`\n]|\n(?![^\S\n]*\n))+)`"


def markdown(text: str) -> str:
    """Paragraphs of Markdown in which all stands for itself, but for pairs of backquotes: these hold code, as in
    comments of specs."""
    lines = "\n".join(line.strip() for line in printable_lines(text).split("\n"))
    pieces = re.split(_CODE, lines)
    plain, code = pieces[::2], pieces[1::2]
    shown = [re.sub(_INLINE, r"\\\1", piece) for piece in plain]
    spans = [f"`{' '.join(item.split())}`" for item in code]
    return re.sub(_AT_LINE_START, r"\\", "".join(a + b for a, b in zip(shown, [*spans, ""], strict=True)))
