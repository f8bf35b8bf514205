"""The layout of a generated file: 120 columns, and no line break without need.

Templates are laid out for those who edit them, where a hole may print a short word or a long one. The file that is read
has the layout that clang-format makes with `AlwaysBreakTemplateDeclarations: No` and
`AllowShortFunctionsOnASingleLine: All`:

- `DEVICE` stands for `__device__ __forceinline__`, as CUTE_DEVICE does in CUTLASS, and `UNROLL` for its pragma;
- `template <...>` stands before what it belongs to, on the same line;
- a function whose body is one simple statement is one line;
- what was broken inside brackets, or behind an operator, is joined; parameters that don't fit are aligned.

Each where it fits. Two statements never share a line. Comments, texts, preprocessor lines and lines of the user's
(behind `#line`) stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .line_marks import RESTORE

COLUMNS = 120
# What stands for what. A kernel defines those that it uses, above all else; no name of the user's clashes with them
# (`kernels/identifiers.py`).
MACROS = {
    "DEVICE": "__device__ __forceinline__",
    "UNROLL": '_Pragma("unroll")',
    "NO_UNROLL": '_Pragma("unroll 1")',
}

_LOOP = re.compile(r"^#pragma unroll( 1)?\n( *)(for .*)$", re.M)
_TEMPLATE = re.compile(r"^( *template <.*>)\n *((?!#|//)\S.*[{};])$", re.M)
# A function of one statement that has no others in it.
_FUNCTION = re.compile(
    r"^( *(?:template <.*> )?(?:static |constexpr )*DEVICE .*\{)\n"
    r" *((?!if|for|while|switch|do|UNROLL|NO_UNROLL|#|//)(?=\S)(?:[^;\"\n]|\"[^\"\n]*\")+;)\n *(\})$",
    re.M,
)
_OPERATOR = re.compile(r"(?:[-+*/|&?=<]| :)$")
_APART = re.compile(r'//|"|;.|\\$|^ *#')  # what isn't joined: comments, texts, macros, a statement and the next
_ENDS = (";", "{", "}", '"')
_BRACKETS = {"(": 1, "<": 1, "[": 1, "{": 1, ")": -1, ">": -1, "]": -1, "}": -1}


def laid_out(text: str) -> str:
    """The text of a kernel in this layout."""
    text = _LOOP.sub(_unrolled, text.replace(MACROS["DEVICE"], "DEVICE"))
    text = _FUNCTION.sub(_if_it_fits, _TEMPLATE.sub(_if_it_fits, "\n".join(_joined(text.split("\n")))))
    lines = text.split("\n")
    header = next(number for number, line in enumerate(lines) if not line.startswith("//"))
    used = [f"#define {name} {meaning}" for name, meaning in MACROS.items() if _uses(text, name)]
    return "\n".join([*lines[:header], *([""] if used else []), *used, *lines[header:]])


def _uses(text: str, macro: str) -> bool:
    return f" {macro} " in text or f"\n{macro} " in text


def _unrolled(found: re.Match[str]) -> str:
    line = f"{found[2]}{'NO_UNROLL' if found[1] else 'UNROLL'} {found[3]}"
    return line if len(line) <= COLUMNS else found[0]


def _if_it_fits(found: re.Match[str]) -> str:
    """The lines of a match as one."""
    line = " ".join(found.groups())
    return line if len(line) <= COLUMNS else found[0]


def _joined(lines: Sequence[str]) -> Iterator[str]:
    """Statements and heads of functions that were broken, on one line each where they fit."""
    number = 0
    of_user = False
    while number < len(lines):
        line = lines[number]
        of_user = line != RESTORE and (of_user or line.startswith("#line"))
        if of_user or line.endswith(_ENDS) or "//" in line:  # of most lines no more is to be asked
            yield line
            number += 1
        else:
            whole, number = _whole(lines, number)
            yield from whole


def _whole(lines: Sequence[str], first: int) -> tuple[list[str], int]:
    """What begins on a line, joined if it fits, and the number of the line behind it."""
    text, end = lines[first], first + 1
    while text and end < len(lines) and _goes_on(text, lines[end]):
        text += ("" if text.endswith(("(", "{", "[")) else " ") + lines[end].lstrip()
        end += 1
    if end == first + 1 or end == len(lines) or _goes_on(text, ""):
        return [lines[first]], first + 1
    if len(text) <= COLUMNS:
        return [text], end
    aligned = list(_aligned(text)) if text.lstrip().startswith(("DEVICE ", "static DEVICE ")) else []
    return (aligned, end) if aligned else ([lines[first]], first + 1)


def _goes_on(text: str, following: str) -> bool:
    """Whether code that is no more than a statement goes on with the line that follows."""
    if _APART.search(text) or _APART.search(following) or text.endswith("{"):
        return False
    if following.lstrip().startswith(": "):  # the members of a constructor
        return text.endswith(")") and "DEVICE " in text
    return any(text.count(left) > text.count(right) for left, right in ("()", "{}")) or bool(_OPERATOR.search(text))


def _aligned(head: str) -> Iterator[str]:
    """The head of a function with its parameters below each other; nothing if it has members to set, too."""
    if ") : " in head:
        return
    column, start = head.index("(") + 1, 0
    while len(head) - start + (column if start else 0) > COLUMNS:
        room = COLUMNS - (column if start else 0)
        ends = [end for end in _ends_of_parameters(head) if start < end <= start + room]
        if not ends:
            break
        yield " " * (column if start else 0) + head[start : ends[-1]]
        start = ends[-1] + 1
    yield " " * (column if start else 0) + head[start:]


def _ends_of_parameters(head: str) -> Iterator[int]:
    """The places behind the commas between parameters."""
    depth = 0
    for place, character in enumerate(head[head.index("(") :], head.index("(")):
        depth += _BRACKETS.get(character, 0)
        if depth == 1 and character == ",":
            yield place + 1
