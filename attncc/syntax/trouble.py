"""A token that does not fit, and the words for it: people read "an expression", not the names of terminals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from lark import Token

from ..diagnostics import Diagnostic
from ..source import SourceFile, Span
from .grammar import literals, terminals
from .tokens import END, first_on_line, span

STATEMENTS = ("CONST", "INPUT", "LET", "KEEP", "SCORE", "SCALE", "SINK", "NORMALIZE", "DROPOUT")
ITEMS = ("MASK", "FN", "VARIANT", "SCHEDULE")
BRACKETS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}

# What statements and items look like.
FORMS = {
    "IMPORT": '`import masks` or `import "mine.attn"`',
    "MASK": "`mask name(parameters) = condition` or `mask name(parameters) { let … keep if … }`",
    "FN": "`fn name(parameters) = value`",
    "VARIANT": "`variant name { … }`",
    "SCHEDULE": "`schedule name for variant on sm_90a { … }`",
    "CONST": "`const name: int = value` or `const name: int[2] = [value, value]`",
    "INPUT": "`input name: f32[head, pos]`, or `input name: f32` for a scalar",
    "LET": "`let name = value`",
    "KEEP": "`keep if condition`",
    "SCORE": "`score = value`",
    "SCALE": "`scale value`",
    "SINK": "`sink input_name`",
    "NORMALIZE": "`normalize softmax`",
    "DROPOUT": "`dropout rate`",
}

_SHOWN = 60  # characters of a token in a message


@dataclass(frozen=True)
class Trouble:
    """The token at `index` does not fit: `expected` would, and `opened` are the brackets still open here."""

    source: SourceFile
    tokens: list[Token]
    index: int
    expected: frozenset[str]
    opened: tuple[Token, ...]

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def before(self) -> str:
        """The terminal before the token; an empty string at the beginning."""
        return self.tokens[self.index - 1].type if self.index else ""

    @cached_property
    def at(self) -> Span:
        return span(self.source, self.token)

    @property
    def new_line(self) -> bool:
        return self.token.type == END or first_on_line(self.source, self.token)


@dataclass(frozen=True)
class Mistake:
    """A diagnostic, and readings: terminals to take in place of the token. The first that fits what follows is used."""

    diagnostic: Diagnostic
    readings: tuple[tuple[str, ...], ...] = ()


def expected_and_found(trouble: Trouble) -> str:
    return f"expected {either(_expected(trouble.expected))}, found {found(trouble.token)}"


def found(token: Token) -> str:
    if token.type == "NAME":
        return f"the name `{token[:_SHOWN]}`"
    return "the end of the file" if token.type == END else f"`{token[:_SHOWN]}`"


def either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


_WORDS = {
    "NAME": "a name",
    "INT": "a whole number",
    "FLOAT": "a number",
    "STRING": "a path in quotes",
    "LENGTHS": "a range such as `1024..8192`",
    END: "the end of the file",
}

_PREFIXES = "- + ~ not ( true false score scale any all sum"
_INFIXES = "or and < <= > >= == != | ^ & << >> + - * / // %"
_AROUND_OPERATORS = "( [ if"  # what else may follow a value


@cache
def _groups() -> tuple[tuple[str, frozenset[str], str], ...]:
    """(a terminal that is expected only with the rest of the group, the group, its name)"""
    of = terminals()
    return (
        ("TILDE", frozenset(("NAME", "INT", "FLOAT", *(of[text] for text in _PREFIXES.split()))), "an expression"),
        ("STAR", frozenset(of[text] for text in f"{_INFIXES} {_AROUND_OPERATORS}".split()), "an operator"),
        ("CONST", frozenset(STATEMENTS), "a statement"),
        ("KEEP", frozenset(("LET", "KEEP")), "`let`, `keep if`"),
        ("VARIANT", frozenset((*ITEMS, END)), "a mask, a function, a variant, a schedule"),
    )


def _expected(terminals: frozenset[str]) -> list[str]:
    left, words = terminals, []
    for sign, group, name in _groups():
        if sign in left:
            words.append(name)
            left -= group
    return words + sorted(_WORDS.get(terminal) or f"`{literals()[terminal]}`" for terminal in left)
