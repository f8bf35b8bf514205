"""What a text declares, read from its tokens alone: so it is known of half-written files too.

Items and statements begin with keywords that stand nowhere else, so their ends need no parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lark import Token

from ..diagnostics import AttnccError, Diagnostics
from ..source import SourceFile, Span
from ..syntax.comments import comments, documentation
from ..syntax.tokens import END, first_on_line, span, tokenize
from ..syntax.trouble import ITEMS, STATEMENTS

KINDS = {"IMPORT": "import", "MASK": "mask", "FN": "function", "VARIANT": "variant", "SCHEDULE": "schedule"}
_DECLARING = {"CONST": "const", "INPUT": "input", "LET": "let"}


@dataclass(frozen=True)
class Declared:
    """A name, where it is given, and the whole statement or item that gives it."""

    name: str
    kind: str  # as messages say it: const, input, let, parameter, loop variable, mask, function, variant, schedule
    at: Span
    whole: Span

    @property
    def source(self) -> SourceFile:
        return self.at.source

    @property
    def doc(self) -> str:
        """The comment lines above, or the comment behind it on its line."""
        return documentation(self.source, self.whole.start) or _behind(self.whole)

    @property
    def parameters(self) -> str:
        """Of a mask or function: `(left, right)`."""
        text = self.source.text[self.at.end : self.whole.end]
        end = text.find(")")
        return " ".join(text[: end + 1].split()) if text.lstrip().startswith("(") and end >= 0 else "()"


@dataclass(frozen=True)
class Statement:
    """The tokens of a statement or setting, or of the head of an item."""

    tokens: tuple[Token, ...]

    @property
    def type(self) -> str:
        return self.tokens[0].type


@dataclass(frozen=True)
class Item:
    """An import, mask, function, variant or schedule: its head up to the brace (or all of it), and its statements."""

    kind: str
    name: Declared | None
    head: Statement
    statements: tuple[Statement, ...]
    declared: tuple[Declared, ...]
    whole: Span


@dataclass(frozen=True)
class Outline:
    """The tokens of a text, without comments, and the items that they make."""

    source: SourceFile
    tokens: tuple[Token, ...] = field(repr=False)
    items: tuple[Item, ...]

    @classmethod
    def of(cls, source: SourceFile) -> Outline:
        """Empty where a text has no tokens that could be read: one of another version, or far too large."""
        try:
            tokens = [token for token in tokenize(source, Diagnostics()) if token.type != END]
        except AttnccError:
            tokens = []
        starts = [place for place, token in enumerate(tokens) if token.type in (*ITEMS, "IMPORT")]
        ends = [*starts[1:], len(tokens)] if starts else []
        items = tuple(_item(source, tokens[start:end]) for start, end in zip(starts, ends, strict=True))
        return cls(source, tuple(tokens), items)

    def token_at(self, offset: int) -> Token | None:
        """The token that holds the offset; between two, the name or keyword among them."""
        touching = [token for token in self.tokens if _start(token) <= offset <= _end(token)]
        words = [token for token in touching if token[:1].isalpha()]
        return next(iter(words or touching[::-1]), None)

    def item_at(self, offset: int) -> Item | None:
        """The item in which the offset lies; the blanks and comments behind an item belong to it."""
        found = None
        for item in self.items:
            if item.whole.start <= offset:
                found = item
        return found

    @cached_property
    def globals(self) -> dict[str, Declared]:
        """The masks and functions of the file."""
        return self.named("mask", "function")

    def named(self, *kinds: str) -> dict[str, Declared]:
        """The items of these kinds; of two with one name the first."""
        found: dict[str, Declared] = {}
        for item in self.items:
            if item.name and item.kind in kinds:
                found.setdefault(item.name.name, item.name)
        return found

    def statement_at(self, offset: int) -> Statement | None:
        item = self.item_at(offset)
        if item is None:
            return None
        return next(
            (part for part in item.statements if _start(part.tokens[0]) <= offset <= _end(part.tokens[-1])), None
        )


def spanned(source: SourceFile, tokens: Sequence[Token]) -> Span:
    return span(source, tokens[0]).to(span(source, tokens[-1]))


def _start(token: Token) -> int:
    return token.start_pos or 0


def _end(token: Token) -> int:
    return token.end_pos or 0


def _item(source: SourceFile, tokens: list[Token]) -> Item:
    """The item that these tokens are, up to the next one's keyword."""
    types = [token.type for token in tokens]
    body = types.index("LBRACE") + 1 if "LBRACE" in types else len(tokens)
    closing = types.index("RBRACE", body) if types[0] != "SCHEDULE" and "RBRACE" in types[body:] else len(tokens)
    kind, whole = KINDS[types[0]], spanned(source, tokens)
    name = Declared(str(tokens[1]), kind, span(source, tokens[1]), whole) if types[1:2] == ["NAME"] else None
    statements = tuple(_statements(source, tokens[body:closing], kind == "schedule"))
    declared = [*_parameters(source, tokens, whole), *_named(source, statements), *_loops(source, tokens, whole)]
    return Item(kind, name, Statement(tuple(tokens[:body])), statements, tuple(declared), whole)


def _statements(source: SourceFile, tokens: list[Token], settings: bool) -> Iterator[Statement]:
    starts = [place for place in range(len(tokens)) if _begins(source, tokens, place, settings)]
    ends = [*starts[1:], len(tokens)] if starts else []
    for start, end in zip(starts, ends, strict=True):
        yield Statement(tuple(tokens[start:end]))


def _begins(source: SourceFile, tokens: list[Token], place: int, settings: bool) -> bool:
    """Whether a statement begins there. `score` and `scale` stand in expressions too."""
    token, following = tokens[place], tokens[place + 1].type if place + 1 < len(tokens) else ""
    if settings:
        return token.type == "NAME" and (following == "EQUAL" or first_on_line(source, token))
    if token.type == "SCORE":
        return following == "EQUAL" or first_on_line(source, token)
    return token.type in STATEMENTS and (token.type != "SCALE" or first_on_line(source, token))


def _parameters(source: SourceFile, tokens: list[Token], whole: Span) -> Iterator[Declared]:
    """Those of a mask or function."""
    if tokens[0].type not in ("MASK", "FN") or [token.type for token in tokens[1:3]] != ["NAME", "LPAR"]:
        return
    for token in tokens[3:]:
        if token.type not in ("NAME", "COMMA"):
            return
        if token.type == "NAME":
            yield Declared(str(token), "parameter", span(source, token), whole)


def _named(source: SourceFile, statements: tuple[Statement, ...]) -> Iterator[Declared]:
    for statement in statements:
        tokens = statement.tokens
        if statement.type in _DECLARING and len(tokens) > 1 and tokens[1].type == "NAME":
            kind = _DECLARING[statement.type]
            yield Declared(str(tokens[1]), kind, span(source, tokens[1]), spanned(source, tokens))


def _loops(source: SourceFile, tokens: list[Token], whole: Span) -> Iterator[Declared]:
    """The variables of `any`, `all` and `sum`."""
    if tokens[0].type == "SCHEDULE":
        return
    for first, name, last in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if (first.type, name.type, last.type) == ("FOR", "NAME", "IN"):
            yield Declared(str(name), "loop variable", span(source, name), whole)


def _behind(whole: Span) -> str:
    """The comment on the line on which a statement ends."""
    for comment in comments(whole.source):
        if comment.span.start >= whole.end:
            between = whole.source.text[whole.end : comment.span.start]
            return "" if "\n" in between else comment.text.removeprefix("#").strip()
    return ""
