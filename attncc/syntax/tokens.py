"""Source text to tokens. What is wrong with a token alone is reported here: characters, names, numbers, versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

from lark import Lark, Token

from ..diagnostics import AttnccError, Diagnostic, Diagnostics, Edit, Label
from ..source import MAX_BYTES, SourceFile, Span
from .grammar import grammar, terminals

LANGUAGE_VERSION = 1
MAX_NESTING = 128  # of brackets, and of expressions in one another; the phases that follow may then recurse
END = "$END"  # lark's name of the token after the last
MAX_NAME = 100  # letters: it becomes part of file names
MAX_TOKENS = 20_000  # of a file
STRAY = "STRAY"  # no token of the language

_MAX_INT = 2**63 - 1
_MAX_FLOAT = (2 - 2**-23) * 2.0**127
_OPENING, _CLOSING = ("LPAR", "LSQB", "LBRACE"), ("RPAR", "RSQB", "RBRACE")

# A string without its closing quote or in single ones, letters that names don't have, or a run of another character.
_STRAY = re.compile(r""""[^"\n]*|'[^'\n]*'?|\w+|(.)\1*""", re.DOTALL)

_COMMENT_OF_C = re.compile(r"/\*(?:[\s\S]*?\*/|.*)")  # one that isn't closed ends with its line


def tokenize(source: SourceFile, diagnostics: Diagnostics) -> list[Token]:
    """The tokens of a text, without comments, the end token last.

    A character that begins no token becomes a token `STRAY`, which fits nowhere. What is wrong with a name or number
    goes to `diagnostics`; the parser may go on. AttnccError if the file is in another version, or nests too deep.
    """
    tokens = list(islice(_lex(source), MAX_TOKENS + 1))
    if len(tokens) > MAX_TOKENS or len(source.text) > MAX_BYTES:
        raise AttnccError(_too_long(source, tokens[-1:]))
    end = tokens[-1].end_pos if tokens else 0
    tokens = _without_comments_of_c(source, tokens, diagnostics)
    tokens.append(Token(END, "", start_pos=end, end_pos=end))
    _check_version(source, tokens)
    _check_nesting(source, tokens)
    for token in tokens:
        if token.type == "NAME":
            _check_name(source, token, diagnostics)
        elif token.type in ("INT", "FLOAT", "LENGTHS"):
            _check_number(source, token, diagnostics)
    return tokens


def names_version(source: SourceFile) -> bool:
    """Whether a text begins as attn texts do, in whatever version."""
    return [token.type for token in islice(_lex(source), 2)] == ["ATTN", "INT"]


def span(source: SourceFile, token: Token) -> Span:
    assert token.start_pos is not None and token.end_pos is not None
    return Span(source, token.start_pos, token.end_pos)


def first_on_line(source: SourceFile, token: Token) -> bool:
    """Nothing but blanks stands before the token on its line."""
    at = span(source, token)
    return not source.line(at.line)[: at.column - 1].strip()


@lru_cache(maxsize=1)
def _scanner(automaton: Lark) -> tuple[re.Pattern[str], Mapping[str, str], frozenset[str]]:
    """What finds the token at a place, a group for each terminal in lark's order; the words among names, and what they
    are; what is no token. lark's own lexer takes three times as long: it counts lines and columns, too."""
    lexer: Any = automaton.parse_interactive("").lexer_thread.lexer
    words = {text: name for text, name in terminals().items() if text.isidentifier()}
    tried = [item for item in lexer.terminals if item.name not in words.values()]
    groups = (f"(?P<{item.name}>{item.pattern.to_regexp()})" for item in tried)
    return re.compile("|".join(groups)), words, frozenset(lexer.ignore_types)


def _lex(source: SourceFile) -> Iterator[Token]:
    """The tokens, and what can't be read between them."""
    scanner, words, ignored = _scanner(grammar())
    text, start = source.text, 0
    while start < len(text):
        found = scanner.match(text, start)
        if found is None:
            found = _STRAY.match(text, start)
            assert found is not None
            kind = STRAY
        else:
            kind = found.lastgroup or ""
            kind = words.get(found[0], kind) if kind == "NAME" else kind
        end = found.end()
        if kind not in ignored:
            yield Token(kind, found[0], start, None, None, None, None, end)
        start = end


def _without_comments_of_c(source: SourceFile, tokens: list[Token], diagnostics: Diagnostics) -> list[Token]:
    """Says of each `/* … */` what comments look like, and takes it for one. No expression has `/*` in it."""
    if "/*" not in source.text:
        return tokens
    places = [span(source, token) for token in tokens]
    begins = {first.start for first, second in pairwise(places) if source.text[first.start : second.end] == "/*"}
    found, end = [], 0
    for token, at in zip(tokens, places, strict=True):
        if at.start < end:
            continue
        if at.start not in begins:
            found.append(token)
            continue
        comment = _COMMENT_OF_C.match(source.text, at.start)
        end = comment.end() if comment else at.end
        opening, help_ = Span(source, at.start, at.start + 2), "write `#` before it, on each of its lines"
        diagnostics.add(Diagnostic("A003", "comments begin with `#`, and end with the line", opening, help=help_))
    return found


def _check_version(source: SourceFile, tokens: list[Token]) -> None:
    """A file of another version raises alone: what else is wrong with it can't be known."""
    if [token.type for token in tokens[:2]] == ["ATTN", "INT"] and tokens[1] != str(LANGUAGE_VERSION):
        raise AttnccError(
            Diagnostic(
                "A006",
                f"this file is written in version {tokens[1][:20]} of the language",
                span(source, tokens[1]),
                f"this attncc understands version {LANGUAGE_VERSION}",
                help=f"install a newer attncc, or write `attn {LANGUAGE_VERSION}` and what version 1 has",
            )
        )


def _check_nesting(source: SourceFile, tokens: list[Token]) -> None:
    opened: list[Token] = []
    for token in tokens:
        if token.type in _OPENING:
            opened.append(token)
        elif token.type in _CLOSING and opened:
            opened.pop()
        if len(opened) > MAX_NESTING:
            raise AttnccError(too_deep(span(source, token), Label(span(source, opened[0]), "the outermost is here")))


def _too_long(source: SourceFile, last: list[Token]) -> Diagnostic:
    return Diagnostic(
        "A011",
        f"the file is longer than attncc takes: {MAX_TOKENS} words, numbers and signs, and {MAX_BYTES} bytes",
        span(source, last[0]) if last else None,
        help="write it into several files, or bring what is long as an input",
    )


def too_deep(at: Span, *labels: Label, notes: tuple[str, ...] = ()) -> Diagnostic:
    return Diagnostic(
        "A010",
        f"this is nested more than {MAX_NESTING} levels deep",
        at,
        labels=labels,
        notes=notes,
        help="name parts of it with `let`",
    )


def _check_name(source: SourceFile, token: Token, diagnostics: Diagnostics) -> None:
    if len(token) > MAX_NAME:
        what = f"this name has {len(token)} letters, more than attncc takes: {MAX_NAME}"
        diagnostics.add(Diagnostic("A011", what, span(source, token), help="give it a shorter name"))
        return
    if not token.startswith("_") and "__" not in token:
        return
    better = re.sub("_+", "_", token).strip("_")
    better += "_" * ("_" in (token[0], token[-1]))  # no keyword and no built-in name ends so
    better = better if better[:1].isalpha() else ""
    diagnostics.add(
        Diagnostic(
            "A004",
            f"`{token}` cannot be a name",
            span(source, token),
            "begins with `_`" if token.startswith("_") else "contains `__`",
            notes=("such names are kept for the code that attncc generates",),
            help=f"call it `{better}`" if better else "begin it with a letter",
            edit=Edit(span(source, token), better) if better else None,
        )
    )


def _check_number(source: SourceFile, token: Token, diagnostics: Diagnostics) -> None:
    ends = str(token).split("..") if token.type == "LENGTHS" else [str(token)]
    problems = map(_float_problem if token.type == "FLOAT" else _int_problem, filter(None, ends))
    problem = next(filter(None, problems), None)
    if problem:
        diagnostics.add(Diagnostic("A009", problem[0], span(source, token), help=problem[1]))


def _float_problem(text: str) -> tuple[str, str] | None:
    if float(text) <= _MAX_FLOAT:
        return None
    return "this number is too large for a float", "floats are 32-bit: the largest is about 3.4e38"


def _int_problem(text: str) -> tuple[str, str] | None:
    if text[0] == "0" and text.strip("0_") and text[1] not in "xX":
        return "a whole number does not begin with 0", f"write `{text.lstrip('0_')[:40]}`"
    # Digits are counted first, since Python refuses to convert thousands of them.
    if len(text.replace("_", "").lstrip("0xX")) > 19 or int(text, 0) > _MAX_INT:
        return "this number is too large for an int", f"ints are 64-bit: the largest is {_MAX_INT}"
    return None
