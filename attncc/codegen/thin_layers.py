"""Writes out, in a rendered kernel, calls of functions that only hand on to another.

Leaf files have interfaces, and what a kernel doesn't need of one is a thin layer: for keys in rows `keys_hold` is
`length_holds`, without clusters `Cluster::load_panels` is `tma_load_panels`, without dropout `Dropout::scale` is 1. Who
follows such a call finds that nothing is there. Here it becomes what the layer makes of it. Then nothing uses the
layer, and `unused.py` drops it.

A function is written out if no other has its name and as many arguments, and its body is one call: of a method of its
struct or of a parameter, or of a function outside structs. Each argument of that is a parameter, in their order and of
the type that is asked for there. What a call passes for other parameters must be a name or a number. A function that
returns 1 goes if each of its calls is a factor. What can't be told stays. (Conditions that are true stay, too: without
them NVRTC makes other code.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .calls import function_words
from .empty_calls import LOCAL
from .layout import COLUMNS
from .unused import LEAF_END

_COMMENT = re.compile(r" *//.*")
_LONGEST = 1000  # characters of a thin function
_DEFINITION = re.compile(r"(?:template <([^;{}]*?)>\s+)?((?:static |constexpr )*__device__ [^;{}()]*?)\b(\w+)(?=\()")
_BODY = re.compile(r"(?: const)?\s*\{\s*(?:return )?([^;{}]*);\s*\}")
_SPECIFIERS = re.compile(r"\b(?:static|constexpr|__device__|__forceinline__) ")
_STRUCT = re.compile(r"^struct (\w+)[^;({]*\{\n.*?^\};", re.M | re.S)
_CALL = re.compile(r"(?:(?P<owner>\w+)\.)?(?P<name>[a-z]\w*)(?:<(?P<templates>[\w, ]*)>)?\((?P<arguments>[\w, ]*)\)")
_PARAMETER = re.compile(r"(.*[ *&])(\w+)(?: = .*)?$|(.+)")
_PLAIN = re.compile(r"[\w.]+")
_RECEIVER = re.compile(r"(?:(?<![\w.:])(?:\w+(?:\.|::))+|(?<![\w.:]))$(?<!template )")
_BRACKETS = re.compile(r"(?<=\w)<[\w, :]*>|[()\[\]{},]")
_ONE, _TIMES = "1", " * "


@dataclass(frozen=True)
class _Function:
    struct: str  # that it is a method of, or ""
    templates: tuple[str, ...]
    result: str
    name: str
    parameters: tuple[tuple[str, str], ...]  # types and names
    words: frozenset[str]  # of its calls, as `calls.py` has them
    body: str  # its only statement, or ""


@dataclass(frozen=True)
class _Target:
    """What a thin function calls: `owner` is the parameter of which it is a method, or ""."""

    owner: str
    name: str
    templates: tuple[str, ...]
    arguments: tuple[str, ...]
    is_method: bool


@dataclass(frozen=True)
class _Place:
    """Of a call in a text."""

    start: int
    end: int
    receiver: str  # with its `.` or `::`
    templates: str
    arguments: int  # where they begin


def without_thin_layers(text: str) -> str:
    """The text with calls of what they lead to. The thin functions stay, unused."""
    functions = [function for piece in text.split(f"{LEAF_END}\n") for function in _functions(piece)]
    counts = Counter(word for function in functions for word in function.words)
    for function in functions:
        if not function.body or any(counts[word] > 1 for word in function.words):
            continue
        target = _target(function, functions)
        if (target is None and function.body != _ONE) or _is_hidden(function.name, text):
            continue
        text = _without_factors(text, function) if target is None else _written_out(text, function, target)
    return text


def _is_hidden(name: str, text: str) -> bool:
    """Whether a lambda or a parameter may have the name, too."""
    around = (text[max(found.start() - 40, 0) : found.end() + 2] for found in re.finditer(rf"{name}\b", text))
    return any(name in found for part in around for found in LOCAL.findall(part))


@lru_cache(maxsize=1024)  # leaf files are the same in all kernels, but for empty calls
def _functions(piece: str) -> tuple[_Function, ...]:
    """Those that a leaf file defines, or what stands between two."""
    code = _COMMENT.sub("", piece)
    structs = [(found.start(), found.end(), found[1]) for found in _STRUCT.finditer(code)]
    return tuple(
        _read(
            next((name for start, end, name in structs if start < found.start() < end), ""),
            found[1] or "",
            found[2],
            found[3],
            code[found.end() : found.end() + _LONGEST],
        )
        for found in _DEFINITION.finditer(code)
    )


def _read(struct: str, templates: str, result: str, name: str, rest: str) -> _Function:
    """A function; `rest` begins with the bracket of its parameters."""
    parameters = rest[1 : _end(rest, 0) - 1]
    body = _BODY.match(rest, len(parameters) + 2)
    return _Function(
        struct,
        tuple(word.split()[-1] for word in _separated(templates)),
        _SPECIFIERS.sub("", result).strip(),
        name,
        tuple(
            (found[1] or found[3], found[2] or "") for found in map(_PARAMETER.match, _separated(parameters)) if found
        ),
        frozenset(function_words(name, rest)) - {f"{name}(*"},
        body[1] if body else "",
    )


def _end(text: str, start: int) -> int:
    """The place behind the bracket that closes the one at `start`."""
    depth = 0
    for found in _BRACKETS.finditer(text, start):
        depth += (found[0] in "([{") - (found[0] in ")]}")
        if depth == 0:
            return found.end()
    return len(text)


def _separated(text: str) -> list[str]:
    """What commas divide, outside brackets."""
    parts, depth, start = [], 0, 0
    for found in _BRACKETS.finditer(text):
        depth += (found[0] in "([{") - (found[0] in ")]}")
        if found[0] == "," and depth == 0:
            parts.append(text[start : found.start()].strip())
            start = found.end()
    return [*parts, text[start:].strip()] if text.strip() else []


def _target(thin: _Function, functions: Sequence[_Function]) -> _Target | None:
    """What a thin function calls, if it only hands its own arguments on, in their order and as they are."""
    found = _CALL.fullmatch(thin.body)
    if found is None:
        return None
    owner, name = found["owner"] or "", found["name"]
    arguments, templates = tuple(_separated(found["arguments"])), tuple(_separated(found["templates"] or ""))
    types = {name: kind for kind, name in thin.parameters if name}
    in_order = [name for name in types if name in arguments] == list(arguments)
    if not in_order or owner in arguments or (owner and owner not in types):
        return None
    meant = [other for other in functions if f"{name}({len(arguments)}" in other.words and other is not thin]
    if len(meant) != 1:
        return None
    (callee,) = meant
    is_method = bool(callee.struct)
    is_sibling = callee.struct == thin.struct and not owner and not thin.parameters
    is_reached = bool(owner) == is_method or is_sibling
    same_types = all(
        types[argument] == kind or ("const" not in types[argument] and types[argument].endswith("& "))
        for argument, (kind, _) in zip(arguments, callee.parameters, strict=False)
    )
    if not same_types or not is_reached or callee.result != thin.result:
        return None
    return _Target(owner, name, templates, arguments, is_method)


def _calls(text: str, name: str) -> Iterator[_Place]:
    """The calls of a function; not what defines it."""
    for found in re.finditer(rf"{name}(?:<([\w, :]*)>)?\(", text):
        before = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        receiver = _RECEIVER.search(before)
        is_definition = "__device__" in before and "{" not in before
        if receiver is not None and not is_definition:
            yield _Place(
                found.start() - len(receiver[0]), _end(text, found.end() - 1), receiver[0], found[1] or "", found.end()
            )


def _written_out(text: str, thin: _Function, target: _Target) -> str:
    pieces, end = [], 0
    for call in _calls(text, thin.name):
        arguments = _separated(text[call.arguments : call.end - 1])
        head = _new_head(call, arguments, thin, target) if f"{thin.name}({len(arguments)}" in thin.words else ""
        if head and call.start >= end:
            values = _by_name(thin, arguments)
            column = call.start - text.rfind("\n", 0, call.start) - 1
            pieces += [text[end : call.start], _filled(head, [values[name] for name in target.arguments], column)]
            end = call.end
    return "".join([*pieces, text[end:]])


def _by_name(thin: _Function, arguments: Sequence[str]) -> dict[str, str]:
    """Arguments by the names of their parameters; by their places where these have none."""
    names = (name or str(place) for place, (_, name) in enumerate(thin.parameters))
    return dict(zip(names, arguments, strict=False))


def _new_head(call: _Place, arguments: Sequence[str], thin: _Function, target: _Target) -> str:
    """What stands before the bracket of the new call; nothing if the call must stay."""
    values = _by_name(thin, arguments)
    templates = dict(zip(thin.templates, _separated(call.templates), strict=False))
    unbound = [name for name in target.templates if name in thin.templates and name not in templates]
    plain = [value for name, value in values.items() if name not in target.arguments]  # the owner is one of them
    if unbound or not all(map(_PLAIN.fullmatch, plain)) or not values.keys() >= {*target.arguments}:
        return ""
    receiver = f"{values[target.owner]}." if target.owner else call.receiver if target.is_method else ""
    bound = ", ".join(templates.get(name, name) for name in target.templates)
    return f"{receiver}{target.name}{f'<{bound}>' if bound else ''}"


def _filled(head: str, arguments: Sequence[str], column: int) -> str:
    """A call that begins in this column, on as many lines as it needs."""
    indent = " " * (column + len(head) + 1)
    text, width = f"{head}({'' if arguments else ')'}", len(indent)
    for place, argument in enumerate(arguments):
        needed = len(argument) + 2
        if place and width + needed > COLUMNS:
            text, width = f"{text.rstrip()}\n{indent}", len(indent)
        text += argument + (", " if place < len(arguments) - 1 else ")")
        width += needed
    return text


def _without_factors(text: str, one: _Function) -> str:
    """Without calls of what returns 1, if each is a factor."""
    pieces, end = [], 0
    for call in _calls(text, one.name):
        before, behind = text[end : call.start], text[call.end : call.end + len(_TIMES)]
        if call.end - call.arguments > 1:
            return text
        if before.endswith(_TIMES) and behind[:1] in (")", ",", ";"):
            pieces.append(before.removesuffix(_TIMES))
            end = call.end
        elif before.endswith(" = ") and behind == _TIMES:
            pieces.append(before)
            end = call.end + len(behind)
        else:
            return text
    return "".join([*pieces, text[end:]])
