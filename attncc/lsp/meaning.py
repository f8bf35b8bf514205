"""What the word at a place means: something that a file declares, a word of the language, or an imported file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lark import Token

from ..source import Span
from . import slots, words
from .documents import Document, Documents
from .outline import Declared, Item, spanned
from .words import Word


@dataclass(frozen=True)
class Meaning:
    """One of `declared`, `word` and `file` is there."""

    at: Span
    declared: Declared | None = None
    word: Word | None = None
    file: Path | None = None
    item: Item | None = None  # where it stands


def meaning(documents: Documents, document: Document, offset: int) -> Meaning | None:
    """None for signs, numbers, and names that mean nothing."""
    outline = document.outline
    token = outline.token_at(offset)
    if token is None:
        return None
    at, item = spanned(document.source, [token]), outline.item_at(token.start_pos or 0)
    if item is None:
        return _word(at, words.find(str(token)))
    if item.kind == "import" and token is not item.head.tokens[0]:
        file = documents.imported_file(document, str(token))
        return Meaning(at, file=file, item=item) if file else None
    before = _before(item, token)
    if token.type != "NAME":
        return _word(at, _keyword(token, before), item)
    if declared := _declared(documents, document, item, token, before):
        return Meaning(at, declared=declared, item=item)
    return _word(at, _built_in(token, before, _is_call(item, token)), item)


def _word(at: Span, word: Word | None, item: Item | None = None) -> Meaning | None:
    return Meaning(at, word=word, item=item) if word else None


def _before(item: Item, token: Token) -> Sequence[Token]:
    """The tokens before it in its statement; empty where it begins one."""
    for part in (item.head, *item.statements):
        if any(other is token for other in part.tokens):
            return part.tokens[: next(place for place, other in enumerate(part.tokens) if other is token)]
    return ()


def _keyword(token: Token, before: Sequence[Token]) -> Word | None:
    if token.type in ("SCORE", "SCALE"):
        return words.find(str(token), "value" if before else "statement")
    return words.find(str(token), "item", "statement", "operator", "reduction", "constant")


def _declared(
    documents: Documents, document: Document, item: Item, token: Token, before: Sequence[Token]
) -> Declared | None:
    """What a name stands for, where that is no word of the language."""
    name, outline = str(token), document.outline
    if item.kind == "schedule":
        slot = slots.slot(before) if before else ""
        return outline.named("variant").get(name) if slot == "variant" else item.name if slot == "name" else None
    if len(before) == 1 and item.name is not None and item.name.at.start == token.start_pos:
        return item.name
    own = [declared for declared in item.declared if declared.name == name]
    if own:  # a loop's variable stands behind its uses, and several loops may have one of that name
        behind = [declared for declared in own if declared.at.start >= (token.start_pos or 0)]
        return behind[0] if behind and own[0].kind == "loop variable" else own[0]
    return outline.globals.get(name) or {found.name: found for found in documents.imported(document)}.get(name)


def _built_in(token: Token, before: Sequence[Token], is_call: bool) -> Word | None:
    name = str(token)
    if not before:
        return words.find(name, "knob")
    slot = slots.slot(before)
    if slot == "setting":
        return words.find(str(before[0]), "knob")
    sorts = {
        "pass": ("pass",), "target": ("target",), "lengths": ("lengths",), "type": ("type",), "dtype": ("dtype",),
        "axis": ("tag", "value"),
        "property": ("property",), "normalizer": ("normalizer",),
    }.get(slot, ("function",) if is_call else ("value",))  # fmt: skip
    return words.find(name, *sorts)


def _is_call(item: Item, token: Token) -> bool:
    for part in (item.head, *item.statements):
        for here, following in zip(part.tokens, part.tokens[1:], strict=False):
            if here is token:
                return following.type == "LPAR"
    return False
