"""The LALR(1) automaton of `grammars/attn.lark`.

To make it from the grammar takes 0.1 s, which every command would pay. So it ships made, as `grammars/attn.json`, which
`python grammars/make_automaton.py` writes. It is for one version of lark, whose own it is: with another one, the
automaton is made from the grammar.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import lark
from lark import Lark, lexer
from lark.lexer import PatternStr

from .. import resources


@cache
def grammar() -> Lark:
    """The parser, made once for each process. It keeps no state between parses; threads may share it."""
    text = resources.read("grammars", "attn.lark")
    kept = json.loads(resources.read("grammars", "attn.json"))
    return _loaded(kept) if kept["key"] == key(text) else make(text)


def key(text: str) -> str:
    """What an automaton that was kept is for: a grammar's text, and a version of lark."""
    return hashlib.sha256(f"{lark.__version__}\0{text}".encode()).hexdigest()


def _loaded(kept: dict[str, Any]) -> Lark:
    """The parser of what `grammars/make_automaton.py` has kept."""
    table = kept["data"]["parser"]["parser"]
    table["tokens"] = _numbered(table["tokens"])
    table["states"] = _numbered({state: _numbered(actions) for state, actions in table["states"].items()})
    return Lark.load({"data": kept["data"], "memo": _numbered(kept["memo"])})


def _numbered(items: Mapping[str, Any]) -> dict[int, Any]:
    """JSON's keys are texts."""
    return {int(number): item for number, item in items.items()}


def make(text: str, *, strict: bool = False) -> Lark:
    """The parser of a grammar text. `strict` also refuses terminals that overlap (it needs interegular, and time)."""
    with _overlaps_sought(strict):
        return Lark(
            text,
            parser="lalr",
            lexer="basic",
            start="module",
            propagate_positions=True,
            maybe_placeholders=False,
            strict=strict,
        )


@contextmanager
def _overlaps_sought(strict: bool) -> Iterator[None]:
    """Where interegular is installed, lark looks for overlaps unasked, which takes longer than all the rest."""
    installed = getattr(lexer, "has_interegular", False)  # not of lark's documented interface
    lexer.has_interegular = installed and strict
    try:
        yield
    finally:
        lexer.has_interegular = installed


@cache
def literals() -> dict[str, str]:
    """Terminal name -> its text, for keywords, operators and brackets: `{"LET": "let", "LPAR": "(", ...}`."""
    return {item.name: item.pattern.value for item in grammar().terminals if isinstance(item.pattern, PatternStr)}


@cache
def terminals() -> dict[str, str]:
    """The inverse of `literals`: text -> terminal name."""
    return {text: name for name, text in literals().items()}


@cache
def keywords() -> frozenset[str]:
    """Every reserved word of the language."""
    return frozenset(text for text in terminals() if text.isalpha())
