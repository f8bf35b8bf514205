"""Leaves out of a rendered kernel what it doesn't use: functions, structs and their methods, constants, macros.

Reachability by names: the kernel is used, and so is each definition whose name stands in the code of a used one; of
functions those that some call may mean by its name and its number of arguments. What shares both with what is called
stays too (overloads by type, methods of other structs), so more may stay than is called, never less. Nothing changes
its place.

The text must be as templates and `structs.py` write it: a definition begins on a line of its own, and ends with the
line on which `;` or `}` closes it. No function is handed over by its name. What isn't recognised stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from .calls import calls, function_words

LEAF_END = "#leaf end"  # a line behind each leaf file, which `without_unused` takes away

_LEAF = re.compile(r"// ---- \S")
_LEAF_BEGIN = "\n// ---- "
_NO_CODE = re.compile(r'"(?:[^"\\\n]|\\.)*"| *//.*')  # texts and comments: names in them don't count
_NO_BRACKET = re.compile(r"[^\n(){}]+")
_NAME = re.compile(r"[A-Za-z_]\w*")
_TEMPLATE = re.compile(r"^\s*template\s*<.*?>\s*\n", re.S)
_STRUCT = re.compile(r"\s*struct\s+(?:alignas\(\d+\)\s*)?(\w+)[^;(]*\{")
_ENUM = re.compile(r"\s*enum\s+(\w+)\s*\{([^}]*)\}")
_ALIAS = re.compile(r"\s*using\s+(\w+)\s*=")
_MACRO = re.compile(r"\s*#define\s+(\w+)")
_FUNCTION = re.compile(r"__device__.*?\b(\w+)\(", re.S)
_CONSTANT = re.compile(r"\s*(?:\[\[maybe_unused\]\]\s*)?(?:static\s+)?(?:constexpr|__constant__)\s[^(]*?=")
_FIELD = re.compile(r"\s*(?:const\s+)?([A-Z]\w*)(?:<[\w, ]*>)? (\w+)(?:\{[\w., ]*\})?;$")
_HARMLESS = re.compile(r"\s*(?:private:|public:|using|static|(?:template <.*>\s+)?(?:__device__|constexpr))")
_NOTHING_DONE = re.compile(r"\) \{\s*\}$")  # the end of a constructor
_ASSIGNED = re.compile(r"(\w+)(?:\[\w*\])?\s*=(?!=)")


@dataclass(eq=False)
class _Item:
    """Some lines of the file, first to last: a definition, or what is between definitions."""

    first: int
    last: int
    names: frozenset[str] = frozenset()  # words of what it defines; if none, it stays with what it is in
    uses: frozenset[str] = frozenset()  # words in its code; not those in its members'
    members: list[_Item] = field(default_factory=list)
    is_comment: bool = False  # belongs to the definitions below it, up to an empty line or another comment
    is_empty: bool = False
    field_type: str = ""  # of a field that may go, if that is a struct without data
    is_idle: bool = False  # a struct without data, which nothing happens to when it is made


class _Source:
    """The lines of a file; the same without comments; how many brackets each opens, less those that it closes."""

    def __init__(self, text: str) -> None:
        code = _NO_CODE.sub("", text)
        depths: dict[str, int] = {}
        brackets = _NO_BRACKET.sub("", code).split("\n")
        for each in set(brackets):
            depths[each] = each.count("(") + each.count("{") - each.count(")") - each.count("}")
        self.lines = text.split("\n")
        self.code = code.split("\n")
        self.depths = [depths[each] for each in brackets]


@dataclass(frozen=True)
class _Piece:
    """A leaf file, or what stands between two of them. No definition goes beyond its piece."""

    lines: Sequence[str]
    items: Sequence[_Item]


def without_unused(text: str) -> str:
    """The text without the definitions that its kernels don't use, the comments that belong to them, and leaf files of
    which nothing is left."""
    pieces = list(_pieces(text))
    items = [item for piece in pieces for item in piece.items]
    kept = _reachable(items, {name for item in items if item.is_idle for name in item.names})
    lines: list[str] = []
    for piece in pieces:
        unwanted = set(_unwanted(piece.lines, piece.items, kept))
        lines.extend(line for number, line in enumerate(piece.lines) if number not in unwanted)
    return "\n".join(lines)


def _pieces(text: str) -> Iterator[_Piece]:
    """Leaf files are the same in all kernels, and half of a kernel's text: each is read once."""
    *before_ends, rest = text.split(f"{LEAF_END}\n")
    for part in before_ends:
        begin = max(part.find(_LEAF_BEGIN), 0)
        if begin:
            yield _read(part[:begin].removesuffix("\n"))
        yield _read_leaf(part[begin:] + LEAF_END)
    yield _read(rest)


def _read(text: str) -> _Piece:
    source = _Source(text)
    return _Piece(source.lines, _items(source, 0, len(source.lines), ""))


_read_leaf = lru_cache(maxsize=1024)(_read)  # there are 120, each with or without some of its calls


def _reachable(items: Sequence[_Item], idle: set[str]) -> set[_Item]:
    """What is kept. A field of an idle type is only if it is named, others are with what they are in."""
    kept: set[_Item] = set()
    used: set[str] = set()
    waiting: dict[str, list[_Item]] = {}
    found = [_Item(0, 0, members=list(items))]
    while found:
        item = found.pop()
        if item in kept:
            continue
        kept.add(item)
        for name in item.uses - used:
            used.add(name)
            found.extend(waiting.pop(name, ()))
        for member in item.members:
            is_data = member.field_type and member.field_type not in idle
            if is_data or not member.names or not used.isdisjoint(member.names):
                found.append(member)
            for name in member.names - used:
                waiting.setdefault(name, []).append(member)
    return kept


def _unwanted(lines: Sequence[str], items: Sequence[_Item], kept: set[_Item]) -> Iterator[int]:
    """The numbers of the lines to leave out."""
    heading: _Item | None = None  # of a leaf file of which nothing has stayed yet
    for index, item in enumerate(items):
        first = lines[item.first]
        if item.is_comment and _LEAF.match(first):
            heading = item
        elif first == LEAF_END:
            yield item.first
            if heading is not None:
                yield from range(heading.first, item.first)
            heading = None
        elif item not in kept or (item.is_comment and not _has_subject(items, index, kept)):
            yield from range(item.first, item.last + 1)
        else:
            if item.names or item.uses:
                heading = None
            yield from _unwanted(lines, item.members, kept)


def _has_subject(items: Sequence[_Item], index: int, kept: set[_Item]) -> bool:
    """Whether something stays that a comment is about; what stands alone is about all that follows."""
    subjects: list[_Item] = []
    for item in items[index + 1 :]:
        if item.is_comment or item.is_empty:
            break
        subjects.append(item)
    return not subjects or any(item in kept for item in subjects)


# ------------------------------------------------------------ definitions


def _items(source: _Source, first: int, end: int, owner: str) -> list[_Item]:
    """The parts of lines [first, end): of a file, or of the struct `owner`."""
    found: list[_Item] = []
    number = first
    while number < end:
        last = _last_line(source, number, end)
        found.append(_item(source, number, last, owner))
        number = last + 1
    return found


def _last_line(source: _Source, first: int, end: int) -> int:
    lines = source.lines
    line = lines[first].lstrip()
    if not line or line == LEAF_END or _LEAF.match(line):
        return first
    if line.startswith("//"):
        return next((n - 1 for n in range(first + 1, end) if not lines[n].lstrip().startswith("//")), end - 1)
    if macro := _MACRO.match(line):
        return _end_of_macro(lines, first, end, macro[1])
    if line.startswith("#") or line in ("private:", "public:"):
        return first
    depth = 0
    for number in range(first, end):
        depth += source.depths[number]
        if depth == 0 and source.code[number].endswith((";", "}")):
            return number
    return end - 1


def _end_of_macro(lines: Sequence[str], first: int, end: int, name: str) -> int:
    """A macro that is undefined again belongs to what is between."""
    undefined = f"#undef {name}"
    if (last := next((n for n in range(first, end) if lines[n] == undefined), None)) is not None:
        return last
    return next(n for n in range(first, end) if not lines[n].endswith("\\"))


def _item(source: _Source, first: int, last: int, owner: str) -> _Item:
    line = source.lines[first].lstrip()
    if not line or line.startswith("//"):
        return _Item(first, last, is_comment=bool(line), is_empty=not line)
    code = source.code
    text = "\n".join(code[first : last + 1])
    struct = _STRUCT.match(_behind_template(text))
    if owner and (field := _FIELD.match(text)):
        return _Item(first, last, frozenset({field[2]}), _used(text), field_type=field[1])
    if struct is None or last == first:
        names = frozenset(word for word in _defined(text) if not word.startswith(f"{owner}("))
        return _Item(first, last, names, _used(text))
    head = next(n for n in range(first, last + 1) if code[n].endswith("{"))
    frame = "\n".join([*code[first : head + 1], code[last]])
    members = _items(source, head + 1, last, struct[1])
    texts = {member: "\n".join(code[member.first : member.last + 1]) for member in members}
    made = [found for member in members if (found := re.search(rf"\b{struct[1]}\(.*", texts[member], re.S))]
    if not made:  # it is made of a list of its fields
        members = [member if not member.field_type else replace(member, names=frozenset()) for member in members]
    is_idle = "__device__" in "".join(texts.values()) and not (
        re.search(r"struct \w+ :", frame)
        or any(not _HARMLESS.match(text) for member, text in texts.items() if text.strip())
        or any(not _NOTHING_DONE.search(found[0]) for found in made)
    )
    return _Item(first, last, frozenset({struct[1]}), _used(frame), members, is_idle=is_idle)


@lru_cache(maxsize=4096)  # kernels of a family have most definitions in common
def _used(text: str) -> frozenset[str]:
    """The names in some code, and the words of its calls."""
    return calls(text).union(_NAME.findall(text))


def _defined(text: str) -> Iterator[str]:
    """The names that a definition is for; none of what stays for other reasons, such as fields and constructors."""
    text = _behind_template(text)
    if "extern" in text.split("\n", 1)[0] or "operator" in text:
        return
    if found := _STRUCT.match(text) or _ALIAS.match(text):
        yield found[1]
    elif found := _ENUM.match(text):
        yield found[1]
        yield from _NAME.findall(found[2])
    elif _CONSTANT.match(text):
        yield from _ASSIGNED.findall(text)
    elif found := _FUNCTION.search(text):
        yield from function_words(found[1], text[found.end(1) :])
    elif found := _MACRO.match(text):
        yield found[1]


def _behind_template(text: str) -> str:
    """A definition without the lines of `template <...>`."""
    found = _TEMPLATE.match(text)
    return text if found is None else text[found.end() :]
