"""The derivative of each float operator by its arguments, and when it counts: what its record says, as expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...ir import Apply, Expr, apply, const
from ...operators import OPERATORS
from ...operators.record import Quantity as Term
from ...operators.record import Where
from .factors import ONE, ZERO, Factors

# A condition and whether it must hold or must not.
Literal = tuple[Expr, bool]


class Derivative(NamedTuple):
    """d node / d arg = value where the guard holds, 0 elsewhere (None: everywhere)."""

    arg: Expr
    value: Expr
    guard: Literal | None = None


def derivatives(node: Apply, factors: Factors) -> Iterator[Derivative]:
    """By each float argument. The node's own value is used again where it can: tanh' is 1 - tanh²."""
    on_floats = OPERATORS[node.op].on_floats
    if on_floats is None or on_floats.derivative is None:
        raise TypeError(f"no derivative of {node.op}")
    found = on_floats.derivative(*(_Quantity(factors, arg) for arg in node.args), _Quantity(factors, node))
    for arg, part in zip(node.args, found if isinstance(found, tuple) else (found,), strict=True):
        if isinstance(part, Where):
            yield Derivative(arg, _expr(part.value), (_expr(part.condition), part.holds))
        elif part is not None:
            yield Derivative(arg, _expr(part))


@dataclass(frozen=True, eq=False)
class _Quantity:
    """An expression under the operators of Python, each of which `Factors` simplifies."""

    factors: Factors
    expr: Expr

    def _of(self, expr: Expr) -> _Quantity:
        return _Quantity(self.factors, expr)

    def __add__(self, other: Term | float) -> _Quantity:
        return self._of(self.factors.plus(self.expr, _expr(other)))

    def __radd__(self, other: float) -> _Quantity:
        return self._of(self.factors.plus(_expr(other), self.expr))

    def __sub__(self, other: Term | float) -> _Quantity:
        return self._of(self.factors.plus(self.expr, self.factors.negated(_expr(other))))

    def __rsub__(self, other: float) -> _Quantity:
        return self._of(self.factors.plus(_expr(other), self.factors.negated(self.expr)))

    def __mul__(self, other: Term | float) -> _Quantity:
        return self._of(self.factors.times(self.expr, _expr(other)))

    def __rmul__(self, other: float) -> _Quantity:
        return self._of(self.factors.times(_expr(other), self.expr))

    def __truediv__(self, other: Term | float) -> _Quantity:
        return self._of(self.factors.over(self.expr, _expr(other)))

    def __rtruediv__(self, other: float) -> _Quantity:
        return self._of(self.factors.over(_expr(other), self.expr))

    def __neg__(self) -> _Quantity:
        return self._of(self.factors.negated(self.expr))

    def apply(self, op: str) -> _Quantity:
        return self._of(self.factors.leaf(apply(op, self.expr)))

    def compare(self, op: str, other: Term | float) -> _Quantity:
        return self._of(self.factors.leaf(apply(op, self.expr, _expr(other))))

    def then(self, a: Term | float, b: Term | float) -> _Quantity:
        return self._of(self.factors.choice(self.expr, _expr(a), _expr(b)))


def _expr(value: object) -> Expr:
    if isinstance(value, _Quantity):
        return value.expr
    assert isinstance(value, float), value
    return {0.0: ZERO, 1.0: ONE}.get(value) or const(value)
