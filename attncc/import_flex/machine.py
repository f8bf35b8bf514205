"""Reads Python as if it ran: every name gets a value, and what a mod returns becomes a term.

Two modes. *Outside* (modules, classes, factories) nothing is an error: what can't be followed becomes a `Captured`
value, an input of the variant if a mod uses it. *Inside* a mod that still holds for what doesn't depend on the pair;
what does depend on it, and can't be taken, is an error, and reading goes on, so that one run names them all.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..diagnostics import Diagnostic, Diagnostics
from ..source import Span
from . import library
from .fold import known
from .modules import Modules
from .terms import Apply, Captured, Compare, Element, Named, Number, Role, Score, Term, walk
from .values import BAD, Bad, Block, Given, Library, Nothing, Places, Scope, Text, Value, noun, parts

Shape = tuple[int | None, ...] | None  # None: not even how many axes a tensor has is known

MAX_STEPS = 100_000
MAX_DEPTH = 120  # of nested calls and expressions, and of a term; each level takes some frames of Python's stack


@dataclass(frozen=True, eq=False)
class ScoreLine:
    """`score = value`, in a score_mod."""

    value: Term
    order: int


@dataclass(frozen=True)
class Rules:
    """What a machine does with each sort of Python: see `rules`, which puts them together."""

    expressions: Mapping[type[ast.expr], Callable[[Machine, Any, Scope], Value]]
    unknown_expression: Callable[[Machine, ast.expr, Scope], Value]  # one without a rule
    statements: Mapping[type[ast.stmt], Callable[[Machine, Any, Scope], Value | None]]
    unknown_statement: Callable[[Machine, ast.stmt, Scope], Value | None]
    call: Callable[[Machine, Value, Given], Value]


class Machine:
    """`given` are the names that the user has declared as inputs, with the lengths of their axes (None where any will
    do): a known value of that name counts as unknown."""

    def __init__(self, found: Diagnostics, rules: Rules, given: Mapping[str, Shape] | None = None) -> None:
        self.found = found
        self._rules = rules
        self.given = given or {}
        self.inside = False
        self.frames: list[Scope] = []  # of the functions that are being read, each called by the one before
        self.scores: list[ScoreLine] = []
        self._place: Span | None = None  # while torch's functions are read from the prelude: where they are called
        self._nameless = False
        self._order = 0
        self._steps = 0
        self._depth = 0
        self._derived: dict[tuple[str, tuple[Hashable, ...]], Captured] = {}
        self.modules = Modules(self._run_file)
        self.torch = library.functions(self.run)

    # ---------------------------------------------------------------- reading

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """The value of an expression."""
        rule = self._rules.expressions.get(type(node))
        if rule is None:
            return self._rules.unknown_expression(self, node, scope)
        with self.deeper() as allowed:
            return rule(self, node, scope) if allowed else self.stopped(self.span(node, scope))

    def run(self, body: Sequence[ast.stmt], scope: Scope) -> Value | None:
        """Reads statements; what they return, None if they don't."""
        for statement in body:
            rule = self._rules.statements.get(type(statement), self._rules.unknown_statement)
            result = rule(self, statement, scope)
            if result is not None:
                return result
        return None

    def _run_file(self, scope: Scope) -> None:
        """Reads a file of the user's, which stands outside of mods."""
        with self.mode(inside=False), self.placed(None):
            self.run(scope.text.statements, scope)

    def call(self, function: Value, given: Given) -> Value:
        """What a call gives."""
        return self._rules.call(self, function, given)

    @contextmanager
    def deeper(self) -> Iterator[bool]:
        """One level down; whether there is room for it."""
        self._depth += 1
        self._steps += 1
        yield self._depth <= MAX_DEPTH and self._steps <= MAX_STEPS
        self._depth -= 1

    def stopped(self, span: Span) -> Value:
        """What stands where reading had to end."""
        if not self.inside:
            return self.derive(span)
        if any(item.code == "A711" for item in self.found.items):
            return BAD
        if self._steps > MAX_STEPS:
            return self.error("A711", "this mod takes too many steps", span, help=_SMALLER)
        return self.error("A711", "this calls itself, or is nested too deep", span, help=_SMALLER)

    @contextmanager
    def mode(self, inside: bool) -> Iterator[None]:
        before, self.inside = self.inside, inside
        yield
        self.inside = before

    @contextmanager
    def nameless(self) -> Iterator[None]:
        """In a loop that stays one: what depends on its variable can't be named outside of it."""
        before, self._nameless = self._nameless, True
        yield
        self._nameless = before

    @contextmanager
    def placed(self, call: Span | None) -> Iterator[None]:
        """While a function of torch is read, its terms stand where it is called; the user's (None) where they are."""
        before, self._place = self._place, call
        yield
        self._place = before

    @property
    def reads_torch(self) -> bool:
        return self._place is not None

    def span(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword, scope: Scope) -> Span:
        return self._place or scope.text.span(node)

    # ---------------------------------------------------------------- values

    def number(self, value: Value, span: Span) -> Term | None:
        """A value as a term; None after an error."""
        if self.has_axes(value):
            return self._only_element(self.as_block(value, span), span)
        match value:
            case Term():
                return value
            case Captured():
                return Element(captured=value, span=span)
            case Bad():
                return None
        self.error("A705", f"this is {noun(value)} where a number should stand", span, help=_NO_NUMBER)
        return None

    def _only_element(self, block: Block, span: Span) -> Term | None:
        if any(length != 1 for length in block.shape):
            lengths = ", ".join("?" if length is None else str(length) for length in block.shape)
            message = f"this is a tensor of shape [{lengths}] where a number should stand"
            self.error("A707", message, span, help="index it, or reduce it by .any(-1), .all(-1) or .sum(-1)")
            return None
        return block.at(tuple(Number(value=0, span=span) for _ in block.shape))

    def numbers(self, values: Sequence[Value], spans: Sequence[Span]) -> tuple[Term, ...] | None:
        """All of them as terms; None if any isn't one."""
        terms = [self.number(value, span) for value, span in zip(values, spans, strict=True)]
        good = tuple(term for term in terms if term is not None)
        return good if len(good) == len(terms) else None

    def apply(self, op: str, values: Sequence[Value], span: Span) -> Value:
        """An operator on numbers. Outside of mods, one on captured values gives another captured value."""
        if not self.inside and not all(isinstance(value, Term) for value in values):
            return self.derive(span, values)
        if any(map(self.has_axes, values)):
            return self._of_elements(values, span, lambda elements: self.apply(op, elements, span))
        terms = self.numbers(values, [span] * len(values))
        if terms is None:
            return BAD
        if op in _WRITTEN_TWICE:
            terms = tuple(self._shared(term) for term in terms)
        term = Apply(op=op, args=terms, span=span)
        return _folded(term) if _is_unwritten(terms) or op.startswith("to_") else term

    def compare(self, ops: Sequence[str], values: Sequence[Value], spans: Sequence[Span], span: Span) -> Value:
        """`a < b <= c`."""
        if any(map(self.has_axes, values)):
            return self._of_elements(values, span, lambda elements: self.compare(ops, elements, spans, span))
        operands = self.numbers(values, spans)
        return BAD if operands is None else Compare(ops=tuple(ops), operands=operands, span=span)

    def has_axes(self, value: Value) -> bool:
        """Whether a value is a tensor that is known to have axes."""
        return isinstance(value, Block) or (isinstance(value, Captured) and bool(self.shape_of(value)))

    def shape_of(self, captured: Captured) -> tuple[int | None, ...] | None:
        """The shape of a tensor, where its definition or the user has told it."""
        told = self.given.get(captured.name)
        return captured.shape if told is None else told

    def _of_elements(self, values: Sequence[Value], span: Span, make: Callable[[list[Value]], Value]) -> Value:
        """What `make` gives for the elements of tensors, at each place of the shape that they are broadcast to."""
        blocks = [self.as_block(value, span) for value in values]
        shape = broadcast([item.shape for item in blocks])
        if shape is None:
            shapes = " and ".join(str(list(item.shape)) for item in blocks if item.shape)
            return self.error("A707", f"tensors of shapes {shapes} don't fit", span, help="give them the same axes")

        def at(places: Places) -> Term | None:
            return self.number(make([item.at(at_its_axes(item.shape, places)) or BAD for item in blocks]), span)

        return Block(shape, at)

    def as_block(self, value: Value, span: Span) -> Block:
        """A value as a block: one without axes unless it has some."""
        if isinstance(value, Block):
            return value
        if isinstance(value, Captured) and (shape := self.shape_of(value)):
            return Block(shape, lambda places: Element(captured=value, indices=places, span=span))
        term = self.number(value, span)
        return Block((), lambda places: term)

    def _shared(self, term: Term) -> Term:
        """A term under a name, should it be written more than once."""
        if isinstance(term, Apply) and term.op == "to_float" and not term.args[0].children:
            return term
        value = self.named(term, "x", term.span, Role.ARGUMENT)
        return value if isinstance(value, Term) else term

    def cannot(self, span: Span, values: Sequence[Value], why: Diagnostic, shape: Shape = None) -> Value:
        """What can't be followed: an error where it depends on the pair, else a value from outside."""
        every = [part for value in values for part in parts(value)]
        if BAD in every:
            return BAD
        if self.inside and any(isinstance(part, Block) or (isinstance(part, Term) and part.varies) for part in every):
            self.found.add(why)
            return BAD
        return self.derive(span, values, why, shape)

    def derive(
        self, span: Span, values: Sequence[Value] = (), why: Diagnostic | None = None, shape: Shape = None
    ) -> Value:
        """The captured value of an expression outside of the language: the same for the same text and values."""
        every = [part for value in values for part in parts(value)]
        if BAD in every:
            return BAD
        text = " ".join(span.text.split())
        key = (text, tuple(map(_identity, every)))
        if key not in self._derived:
            self._derived[key] = Captured(text, span, text, auto=True, why=why, shape=shape)
        return self._derived[key]

    def named(self, value: Value, name: str, span: Span, role: Role) -> Value:
        """A value that gets a name: a term is shared under it, unless it is one name or number already."""
        if isinstance(value, Captured) and value.auto:
            return replace(value, name=name, auto=False)
        if not isinstance(value, Term):
            return value
        if role is Role.OUTER and name in self.given:
            return Captured(name, span, name, shape=self.given[name])
        if value.depth > MAX_DEPTH:
            why = Diagnostic("A711", "this has too many levels", span, help=_SMALLER)
            return self.cannot(span, [value], why)
        is_const = isinstance(value, Number) and role is Role.OUTER and not self.reads_torch
        if isinstance(value, Named) or self._nameless or not (value.children or is_const):
            return value
        if self.reads_torch:
            name, role = "x", Role.ARGUMENT
        return Named(name=name, value=value, role=role, order=self.tick(), span=span)

    def alias(self, value: Value, name: str, span: Span) -> Value:
        """A value that a function has named, under the name that its caller gives it."""
        if not (self.inside and isinstance(value, Named) and value.role is Role.LOCAL) or self._nameless:
            return value
        return Named(name=name, value=value, role=Role.LOCAL, order=self.tick(), span=span)

    def tick(self) -> int:
        self._order += 1
        return self._order

    def score_line(self, value: Term) -> Score:
        """Makes `score = value` a line; the score after it."""
        self.scores.append(ScoreLine(value, self.tick()))
        return Score(version=len(self.scores), span=value.span)

    # ---------------------------------------------------------------- problems

    def error(self, code: str, message: str, span: Span, *, label: str = "", help: str = "") -> Bad:
        diagnostic = Diagnostic(code, message, span, label, help=help)
        if diagnostic not in self.found.items:
            self.found.add(diagnostic)
        return BAD


def _identity(value: Value) -> Hashable:
    """What tells values of one expression apart."""
    if isinstance(value, Text | Library | Nothing):
        return value
    if not isinstance(value, Term):
        return id(value)
    number = known(value)
    read = tuple(id(term.captured) for term in walk(value) if isinstance(term, Element))
    return read if number is None else (type(number), number)


def broadcast(shapes: Sequence[tuple[int | None, ...]]) -> tuple[int | None, ...] | None:
    """The shape that all fit, None if there is none; an unknown length fits every other."""
    found: list[int | None] = []
    for place in range(1, max(map(len, shapes)) + 1):
        lengths = {shape[-place] for shape in shapes if len(shape) >= place} - {1}
        if len(lengths - {None}) > 1:
            return None
        found.insert(0, next(iter(lengths - {None}), None) if lengths else 1)
    return tuple(found)


def at_its_axes(shape: tuple[int | None, ...], places: Places) -> Places:
    """The places in a tensor of this shape, where it is broadcast to a shape of which these are the places."""
    own = places[len(places) - len(shape) :]
    return tuple(
        Number(value=0, span=place.span) if length == 1 else place for length, place in zip(shape, own, strict=True)
    )


_WRITTEN_TWICE = ("to_int", "mod", "pow", "truncdiv")  # in some cases, which are known when all types are


def _is_unwritten(terms: Sequence[Term]) -> bool:
    """Numbers, some of which stand nowhere in the text: those that a loop counts."""
    return all(isinstance(term, Number) for term in terms) and any(
        term.text == "" for term in terms if isinstance(term, Number)
    )


def _folded(term: Apply) -> Term:
    """An operator on literals as one number, if its value is known."""
    literals = all(isinstance(arg, Number) for arg in term.args)
    value = known(term) if literals else None
    return term if value is None else Number(value=value, span=term.span)


_SMALLER = "write it with fewer calls, loops and parentheses, or bring a part of it as an input"
_NO_NUMBER = "mods compute with the indices, the score, numbers and captured tensors"
