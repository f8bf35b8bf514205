"""What can be written at a place: keywords, built-ins, names in scope, dtypes and axes, knobs and their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lark import Token

from ..schedule.choice import KNOBS, Knob
from ..source import Span
from ..syntax.comments import comments
from . import words
from .documents import Document, Documents, library_files
from .outline import Declared, Item, Outline
from .slots import complete, slot
from .words import Word

_WORD = re.compile(r"\w*\Z")
_ITEMS = ("import", "mask", "fn", "variant", "schedule")
_MOST_NUMBERS = 16  # values of a knob: of more, powers of two alone


@dataclass(frozen=True)
class Choice:
    """`sort` is that of a word, or the kind of what a file declares. `form`: its signature or declaration."""

    name: str
    sort: str
    form: str
    doc: str


@dataclass(frozen=True)
class Cursor:
    """Where somebody writes: behind `before`, the tokens of the statement or item that is written on."""

    documents: Documents
    document: Document
    word: Span  # what stands there of the word
    item: Item | None
    before: Sequence[Token]
    new_line: bool


def completion(documents: Documents, document: Document, offset: int) -> list[Choice]:
    """In the order in which the language's tables have them, names of the file first."""
    source = document.source
    if any(comment.span.start < offset <= comment.span.end for comment in comments(source)):
        return []
    match = _WORD.search(source.text, 0, offset)
    word = Span(source, match.start() if match else offset, offset)
    cursor = _cursor(documents, document, word)
    found: dict[str, Choice] = {}
    for name in _slots(cursor):
        for choice in _CHOICES[name](cursor) if name in _CHOICES else ():
            found.setdefault(choice.name, choice)
    return list(found.values())


def _cursor(documents: Documents, document: Document, word: Span) -> Cursor:
    line = document.source.text.rfind("\n", 0, word.start) + 1
    new_line = not document.source.text[line : word.start].strip()
    item = document.outline.item_at(word.start - 1) if word.start else None
    parts = () if item is None else (item.head, *item.statements)
    before = [[token for token in part.tokens if (token.end_pos or 0) <= word.start] for part in parts]
    written = next((tokens for tokens in reversed(before) if tokens), [])
    if item is not None and _left(item, document.outline, word.start):
        return Cursor(documents, document, word, None, (), new_line)
    return Cursor(documents, document, word, item, written, new_line)


def _left(item: Item, outline: Outline, offset: int) -> bool:
    """Whether the item's closing brace stands before the offset."""
    types = [token.type for token in outline.tokens if item.whole.start <= (token.start_pos or 0) < offset]
    return "LBRACE" in types and types.count("LBRACE") <= types.count("RBRACE")


def _slots(cursor: Cursor) -> Iterator[str]:
    """What may stand there. Nothing ends a statement, so behind a complete one both may follow."""
    item, before = cursor.item, cursor.before
    if item is None or not before:
        yield "item"
        return
    if before[-1].type == "LBRACE" and before[0] is item.head.tokens[0]:
        yield "knob" if item.kind == "schedule" else "statement"
        return
    if complete(before) and cursor.new_line:
        yield "item" if before[0] is item.head.tokens[0] else "knob" if item.kind == "schedule" else "statement"
    yield slot(before)


# -------------------------------------------------------------------- choices by slot


def _words(*sorts: str) -> Callable[[Cursor], Iterator[Choice]]:
    def choices(cursor: Cursor) -> Iterator[Choice]:
        yield from (_choice(word) for word in words.of_sort(*sorts))

    return choices


def _named(*names: str) -> Callable[[Cursor], Iterator[Choice]]:
    def choices(cursor: Cursor) -> Iterator[Choice]:
        found = (words.find(name, "item", "statement", "operator") for name in names)
        yield from (_choice(word) for word in found if word)

    return choices


def _choice(word: Word) -> Choice:
    return Choice(word.name, word.sort, word.form, word.doc)


def _items(cursor: Cursor) -> Iterator[Choice]:
    tokens = cursor.document.outline.tokens
    first = not tokens or cursor.word.start <= (tokens[0].start_pos or 0)
    yield from _named("attn", *_ITEMS)(cursor) if first else _named(*_ITEMS)(cursor)


def _statements(cursor: Cursor) -> Iterator[Choice]:
    names = ("let", "keep") if cursor.item and cursor.item.kind == "mask" else None
    yield from (_choice(word) for word in words.of_sort("statement") if names is None or word.name in names)


def _library(cursor: Cursor) -> Iterator[Choice]:
    for name, path in library_files().items():
        yield Choice(name, "file", f"import {name}", f"the library's file `{path.name}`")
    for path in sorted(cursor.document.path.parent.glob("*.attn")):
        if path != cursor.document.path:
            yield Choice(f'"{path.name}"', "file", f'import "{path.name}"', "a file beside this one")


def _operands(cursor: Cursor) -> Iterator[Choice]:
    """All that has a value. Masks and keep lines don't read `score`."""
    yield from _in_scope(cursor)
    callable_ones = [*cursor.document.outline.globals.values(), *cursor.documents.imported(cursor.document)]
    item = cursor.item
    yield from (_of_file(declared) for declared in callable_ones if item is None or declared != item.name)
    masks = cursor.before[0].type == "KEEP" or (item is not None and item.kind in ("mask", "function"))
    yield from (_choice(word) for word in words.of_sort("value") if not (masks and word.name == "score"))
    yield from _words("function", "reduction", "constant")(cursor)
    yield from _named("not")(cursor)


def _in_scope(cursor: Cursor) -> Iterator[Choice]:
    """Names are used below their declaration; a loop's variable, before it too."""
    begin = cursor.before[0].start_pos or 0
    for declared in cursor.item.declared if cursor.item else ():
        if declared.kind in ("parameter", "loop variable") or declared.whole.start < begin:
            yield _of_file(declared)


def _of_file(declared: Declared) -> Choice:
    if declared.kind in ("mask", "function"):
        form = f"{declared.name}{declared.parameters}"
    elif declared.kind in ("const", "input", "let"):
        form = declared.whole.one_line
    else:
        form = f"{declared.kind} {declared.name}"
    return Choice(declared.name, declared.kind, form, declared.doc)


def _of_kind(kind: str) -> Callable[[Cursor], Iterator[Choice]]:
    def choices(cursor: Cursor) -> Iterator[Choice]:
        yield from (item for item in _in_scope(cursor) if item.sort == kind)

    return choices


def _variants(cursor: Cursor) -> Iterator[Choice]:
    yield from (_of_file(declared) for declared in cursor.document.outline.named("variant").values())


def _axes(cursor: Cursor) -> Iterator[Choice]:
    yield from _words("tag")(cursor)
    yield Choice("_", "tag", "_", "an axis of any length, indexed by any int")
    yield from _of_kind("const")(cursor)


def _settings(cursor: Cursor) -> Iterator[Choice]:
    knob = KNOBS.get(str(cursor.before[0]))
    for value in _values(knob) if knob else ():
        yield Choice(value, "setting", f"{cursor.before[0]} = {value}", knob.doc if knob else "")


def _values(knob: Knob) -> Iterator[str]:
    """Its words and numbers."""
    yield from knob.words
    if knob.numbers is not None:
        least, most = knob.numbers
        every = range(least, most + 1)
        yield from (str(value) for value in every if len(every) <= _MOST_NUMBERS or value & (value - 1) == 0)


_CHOICES: dict[str, Callable[[Cursor], Iterator[Choice]]] = {
    "item": _items,
    "statement": _statements,
    "knob": _words("knob"),
    "library": _library,
    "variant": _variants,
    "for": _named("for"),
    "pass": lambda cursor: iter([*_words("pass")(cursor), *_named("on")(cursor)]),
    "on": _named("on"),
    "target": _words("target"),
    "lengths": _words("lengths"),
    "type": _words("type"),
    "dtype": _words("dtype"),
    "axis": _axes,
    "property": _words("property"),
    "normalizer": _words("normalizer"),
    "input": _of_kind("input"),
    "if": _named("if"),
    "in": _named("in"),
    "range": _named("range"),
    "setting": _settings,
    "operand": _operands,
    "operator": _named("and", "or", "if", "else", "for"),
}
