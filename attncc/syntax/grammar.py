"""The LALR(1) automaton of `grammars/attn.lark`, made once for each process."""

from __future__ import annotations

from functools import cache

from lark import Lark
from lark.lexer import PatternStr

from .. import resources

OPTIONS = {"parser": "lalr", "lexer": "basic", "start": "module", "propagate_positions": True}


@cache
def grammar() -> Lark:
    return Lark(resources.read("grammars", "attn.lark"), maybe_placeholders=False, **OPTIONS)


@cache
def literals() -> dict[str, str]:
    """Terminal name -> its text, for keywords, operators and brackets: `{"LET": "let", "LPAR": "(", ...}`."""
    return {item.name: item.pattern.value for item in grammar().terminals if isinstance(item.pattern, PatternStr)}
