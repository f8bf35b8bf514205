"""The derivative of each float operator by its arguments, and when it counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..ir import Apply, Expr, apply, const
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
    match node.op, node.args:
        case "select", (condition, then, otherwise):
            yield Derivative(then, ONE, (condition, True))
            yield Derivative(otherwise, ONE, (condition, False))
        case (("min" | "max"), (a, b)):
            half = factors.choice(apply("eq", a, b), const(0.5), ONE)
            order = ("le", "ge") if node.op == "min" else ("ge", "le")
            for arg, op in zip((a, b), order, strict=True):
                yield Derivative(arg, half, (factors.leaf(apply(op, a, b)), True))
        case (("add" | "sub"), (a, b)):
            yield Derivative(a, ONE)
            yield Derivative(b, ONE if node.op == "add" else const(-1.0))
        case "mul", (a, b):
            yield Derivative(a, b)
            yield Derivative(b, a)
        case "div", (a, b):
            yield Derivative(a, factors.over(ONE, b))
            yield Derivative(b, factors.negated(factors.over(node, b)))
        case op, (x,) if op in _OF_ONE:
            yield Derivative(x, _OF_ONE[op](factors, x, node))
        case _:
            raise TypeError(f"no derivative of {node.op}")


def _sign(factors: Factors, x: Expr, _: Expr) -> Expr:
    below = factors.choice(apply("lt", x, ZERO), const(-1.0), ZERO)
    return factors.choice(apply("gt", x, ZERO), ONE, below)


def _tanh(factors: Factors, _: Expr, value: Expr) -> Expr:
    return factors.plus(ONE, factors.negated(factors.times(value, value)))


def _sigmoid(factors: Factors, _: Expr, value: Expr) -> Expr:
    return factors.times(value, factors.plus(ONE, factors.negated(value)))


def _erf(factors: Factors, x: Expr, _: Expr) -> Expr:
    bell = factors.leaf(apply("exp", factors.negated(factors.times(x, x))))
    return factors.times(const(2 / math.sqrt(math.pi)), bell)


_OF_ONE: dict[str, Callable[[Factors, Expr, Expr], Expr]] = {
    "neg": lambda factors, x, value: const(-1.0),
    "abs": _sign,
    "exp": lambda factors, x, value: value,
    "exp2": lambda factors, x, value: factors.times(value, const(math.log(2))),
    "log": lambda factors, x, value: factors.over(ONE, x),
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "sqrt": lambda factors, x, value: factors.over(const(0.5), value),
    "sin": lambda factors, x, value: factors.leaf(apply("cos", x)),
    "cos": lambda factors, x, value: factors.negated(factors.leaf(apply("sin", x))),
}
