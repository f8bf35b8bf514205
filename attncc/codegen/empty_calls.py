"""Leaves out of a rendered kernel the calls of functions that do nothing.

Leaf files have interfaces, and one that a kernel doesn't need (no dropout, no cluster, no ping-pong) has functions with
empty bodies. Calls of those say nothing to a reader. A call goes if it is a whole statement, or all that a loop or an
`if` of one line does, each definition that it may mean is empty, and neither its arguments nor the condition can have
effects: they change nothing, and call nothing but functions that only return what they read. Then nothing uses the
definitions, and `unused.py` drops them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_DEFINITION = re.compile(r"__device__ ([^;{}()]*?)\b(\w+)\(")
LOCAL = re.compile(r"\bauto (\w+) =|\b[A-Z]\w*&? (\w+)[,)]")  # may hide a function: lambdas, parameters
_EMPTY_BODY = re.compile(r"[^;{}]*?\)(?: const)? \{\s*\}")
_STRUCT = re.compile(r"^struct (\w+)[^;(]*?\{\n(.*?)^\};", re.M | re.S)
_LOOP = re.compile(r"(?:#pragma unroll.*\n *)?for \([^()]*\) ")
_GUARD = re.compile(r"if \(((?:[^();{}]|\([^();{}]*\))*)\) ")
_READS = re.compile(r"[^;{}]*?\)(?: const)? \{ return ([^;{}()]*); \}")  # the body of a function that changes nothing
_CALLED = re.compile(r"(\w+)\(")
_EFFECT = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)")
_STATEMENT_ENDS = (";", "{", "}")


def without_empty_calls(text: str) -> str:
    """The text without them, and without calls of what becomes empty by that."""
    while True:
        changed = _without(text, list(_empty_functions(text)))
        if changed == text:
            return text
        text = changed


def _empty_functions(text: str) -> Iterator[str]:
    """What their calls look like: `name`, or `Struct::name` where others of that name do something."""
    empty, busy = _sorted_names(text)
    busy |= {name for found in LOCAL.findall(text) for name in found}
    yield from empty - busy
    if not empty & busy:
        return
    for struct in _STRUCT.finditer(text):
        empty_here, busy_here = _sorted_names(struct[2])
        yield from (f"{struct[1]}::{name}" for name in empty_here & busy - busy_here)


def _sorted_names(text: str) -> tuple[set[str], set[str]]:
    """The names of functions that have an empty body, and of those that have another."""
    empty: set[str] = set()
    busy: set[str] = set()
    for found in _DEFINITION.finditer(text):
        is_empty = found[1].endswith("void ") and _EMPTY_BODY.match(text, found.end())
        (empty if is_empty else busy).add(found[2])
    return empty, busy


def _without(text: str, functions: Sequence[str]) -> str:
    if not functions:
        return text
    names = "|".join(map(re.escape, functions))
    before = rf"^ *(?:{_LOOP.pattern})?(?:{_GUARD.pattern})?"
    call = re.compile(rf"{before}((?:[\w.]|::)*?)\b(?:{names})(?:<[\w, ]*>)?\(([^();{{}}]*)\);\n(?! *else\b)", re.M)
    return "".join(_pieces(text, call.finditer(text)))


def _readers(text: str) -> set[str]:
    """The names of functions all of which only return what they read."""
    reading: set[str] = set()
    others: set[str] = set()
    for found in _DEFINITION.finditer(text):
        body = _READS.match(text, found.end())
        (others if body is None or _EFFECT.search(body[1]) else reading).add(found[2])
    return reading - others


def _pieces(text: str, calls: Iterable[re.Match[str]]) -> Iterator[str]:
    end = 0
    readers: set[str] | None = None  # few texts need them
    for call in calls:
        start = call.start()
        if readers is None and call[1]:
            readers = _readers(text)
        if _is_removable(call, readers or set()):
            yield text[end:start]
            end = call.end()
    yield text[end:]


def _is_removable(call: re.Match[str], readers: set[str]) -> bool:
    """Whether the call is a statement in a block, of what it seems to be, and without effects."""
    condition, owner, arguments = call[1] or "", call[2], call[3]
    in_block = _code_above(call.string, call.start()).endswith(_STATEMENT_ENDS)
    is_call = not owner or owner.endswith((".", "::"))
    has_effect = _EFFECT.search(arguments) or _EFFECT.search(condition) or set(_CALLED.findall(condition)) - readers
    return in_block and is_call and not has_effect


def _code_above(text: str, end: int) -> str:
    """The last line before a place that holds code, without its comment."""
    while end > 0:
        begin = text.rfind("\n", 0, end - 1) + 1
        if line := text[begin:end].split("//", maxsplit=1)[0].rstrip():
            return line
        end = begin
    return ""
