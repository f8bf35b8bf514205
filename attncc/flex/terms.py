"""Values of a mod that runs on symbols: what one element of a tensor is, as a term of `import_flex`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..import_flex.terms import Apply, Captured, Compare, Element, Named, Number, Role, Term
from ..source import Span

Places = tuple[Term, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the mod: `at` gives the term of the element at some places, one for each axis."""

    shape: tuple[int, ...]
    dtype: Any
    at: Callable[[Places], Term]

    @cached_property
    def term(self) -> Term:
        """The value of a tensor without axes; the same term however often it is read."""
        return self.at(())


def single(term: Term, dtype: Any) -> Value:
    return Value((), dtype, lambda places: term)


@dataclass(frozen=True)
class Maker:
    """Makes terms that stand for one operation of the user's."""

    span: Span
    ints: bool = False  # the operation gives ints

    def __call__(self, op: str, *args: Term) -> Term:
        return Apply(op=op, args=args, span=self.span)

    def number(self, value: float | bool) -> Term:
        return Number(value=value, span=self.span)

    def compare(self, op: str, left: Term, right: Term) -> Term:
        return Compare(ops=(op,), operands=(left, right), span=self.span)

    def element(self, captured: Captured, places: Places) -> Term:
        return Element(captured=captured, indices=places, span=self.span)

    def named(self, name: str | None, value: Term, order: int) -> Term:
        role = Role.ARGUMENT if name is None else Role.LOCAL
        return Named(name=name or "value", value=value, role=role, order=order, span=self.span)


def entry(value: Value, places: Places) -> Term:
    """The entry of a value at places of a shape that it is broadcast to."""
    if not value.shape:
        return value.term
    own = places[len(places) - len(value.shape) :]
    return value.at(tuple(_first(place) if size == 1 else place for place, size in zip(own, value.shape, strict=True)))


def _first(place: Term) -> Term:
    return Number(value=0, span=place.span)
