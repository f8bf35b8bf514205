"""Leaves out of a rendered kernel the calls of functions that do nothing.

Leaf files have interfaces, and one that a kernel doesn't need (no dropout, no cluster, no ping-pong) has functions with
empty bodies. Calls of those say nothing to a reader. A call goes if it is a whole statement, or all that a loop or an
`if` of one line does, each definition that it may mean is empty, and neither its arguments nor the condition can have
effects: they change nothing, and call nothing but functions that only return what they read. Then nothing uses the
definitions, and `unused.py` drops them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from .unused import LEAF_END

_DEFINITION = re.compile(r"__device__ ([^;{}()]*?)\b(\w+)\(")
LOCAL = re.compile(r"\bauto (\w+) =|\b[A-Z]\w*&? (\w+)[,)]")  # may hide a function: lambdas, parameters
_EMPTY_BODY = re.compile(r"[^;{}]*?\)(?: const)? \{\s*\}")
_STRUCT = re.compile(r"^struct (\w+)[^;(]*?\{\n(.*?)^\};", re.M | re.S)
_LOOP = re.compile(r"(?:#pragma unroll.*\n *)?for \([^()]*\) ")
_GUARD = re.compile(r"if \(((?:[^();{}]|\([^();{}]*\))*)\) ")
_READS = re.compile(r"[^;{}]*?\)(?: const)? \{ return ([^;{}()]*); \}")  # the body of a function that changes nothing
_CALLED = re.compile(r"(\w+)\(")
_EFFECT = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)")
_STRUCT_BEFORE = re.compile(r"\b(\w+)::$")
_STATEMENT = re.compile(  # owner, name and arguments
    rf"^ *(?:{_LOOP.pattern})?(?:{_GUARD.pattern})?((?:\w*(?:\.|::))*)(\w+)(?:<[\w, ]*>)?"
    r"\(([^();{}]*)\);\n(?! *else\b)",
    re.M,
)
_STATEMENT_ENDS = (";", "{", "}")


@dataclass(frozen=True)
class _Call:
    """A statement that may go: a call, alone or all that a loop or an `if` of one line does."""

    start: int
    end: int
    owner: str  # what stands before the name: `Struct::`, `object.`
    name: str
    condition: str  # of the `if`

    def is_of(self, functions: Set[str]) -> bool:
        """Whether it is of one of these: `name`, `Struct::name`."""
        if self.name in functions:
            return not self.owner or self.owner.endswith((".", "::"))
        struct = _STRUCT_BEFORE.search(self.owner)
        if struct is None or f"{struct[1]}::{self.name}" not in functions:
            return False
        return not struct.start() or self.owner[: struct.start()].endswith((".", "::"))


@dataclass(frozen=True)
class _Piece:
    """A leaf file, or what stands between two. No definition and no statement goes beyond its piece."""

    empty: frozenset[str]  # names of functions that have an empty body
    busy: frozenset[str]  # and of those that have another
    local: frozenset[str]  # names that may hide functions
    readers: frozenset[str]  # names of functions that only return what they read
    others: frozenset[str]  # and of those that may do more
    structs: tuple[tuple[str, frozenset[str], frozenset[str]], ...]  # their names; their methods, empty and busy
    calls: tuple[_Call, ...]


def without_empty_calls(text: str) -> str:
    """The text without them, and without calls of what becomes empty by that."""
    texts = text.split(LEAF_END)
    while True:
        pieces = [_read(each) for each in texts]
        functions, readers = frozenset(_empty_functions(pieces)), _readers(pieces)
        changed = [_without(each, piece, functions, readers) for each, piece in zip(texts, pieces, strict=True)]
        if changed == texts:
            return LEAF_END.join(texts)
        texts = changed


@lru_cache(maxsize=512)  # leaf files are the same in all kernels, before a call has gone and mostly behind it
def _read(text: str) -> _Piece:
    empty, busy = _sorted_names(text)
    local = frozenset(name for found in LOCAL.findall(text) for name in found)
    structs = tuple((struct[1], *_sorted_names(struct[2])) for struct in _STRUCT.finditer(text))
    calls = tuple(call for found in _STATEMENT.finditer(text) if (call := _removable(found)) is not None)
    return _Piece(empty, busy, local, *_sorted_readers(text), structs, calls)


def _empty_functions(pieces: Sequence[_Piece]) -> Iterator[str]:
    """What their calls look like: `name`, or `Struct::name` where others of that name do something."""
    empty = frozenset[str]().union(*(piece.empty for piece in pieces))
    busy = frozenset[str]().union(*(piece.busy | piece.local for piece in pieces))
    yield from empty - busy
    for struct, empty_here, busy_here in (each for piece in pieces for each in piece.structs):
        yield from (f"{struct}::{name}" for name in empty_here & busy - busy_here)


def _sorted_names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names of functions that have an empty body, and of those that have another."""
    empty: set[str] = set()
    busy: set[str] = set()
    for found in _DEFINITION.finditer(text):
        is_empty = found[1].endswith("void ") and _EMPTY_BODY.match(text, found.end())
        (empty if is_empty else busy).add(found[2])
    return frozenset(empty), frozenset(busy)


def _sorted_readers(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names of functions that only return what they read, and of others."""
    reading: set[str] = set()
    others: set[str] = set()
    for found in _DEFINITION.finditer(text):
        body = _READS.match(text, found.end())
        (others if body is None or _EFFECT.search(body[1]) else reading).add(found[2])
    return frozenset(reading), frozenset(others)


def _readers(pieces: Sequence[_Piece]) -> frozenset[str]:
    """The names of functions all of which only return what they read."""
    reading = frozenset[str]().union(*(piece.readers for piece in pieces))
    return reading.difference(*(piece.others for piece in pieces))


def _without(text: str, piece: _Piece, functions: Set[str], readers: Set[str]) -> str:
    parts, end = [], 0
    for call in piece.calls:
        if call.is_of(functions) and readers >= set(_CALLED.findall(call.condition)):
            parts.append(text[end : call.start])
            end = call.end
    return "".join([*parts, text[end:]]) if parts else text


def _removable(found: re.Match[str]) -> _Call | None:
    """The call, if it is a statement in a block without effects of its own."""
    condition, owner, name, arguments = found[1] or "", found[2], found[3], found[4]
    if _EFFECT.search(arguments) or _EFFECT.search(condition):
        return None
    if not _code_above(found.string, found.start()).endswith(_STATEMENT_ENDS):
        return None
    return _Call(found.start(), found.end(), owner, name, condition)


def _code_above(text: str, end: int) -> str:
    """The last line before a place that holds code, without its comment."""
    while end > 0:
        begin = text.rfind("\n", 0, end - 1) + 1
        if line := text[begin:end].split("//", maxsplit=1)[0].rstrip():
            return line
        end = begin
    return ""
