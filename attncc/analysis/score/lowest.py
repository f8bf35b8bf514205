"""How low score lines can bring a score, whatever the inputs hold.

A row whose first tile has very low scores alone takes one of them for its maximum, and other scores lose their digits
relative to it. Kernels whose score lines can do that keep such rows apart (templates/softmax/low_scores_softmax.cuh).

The rule: take 0 for the raw score, and find a number that the final score is never below. So lines that scale the
score don't count, as a large `scale` doesn't, nor do functions that are 0 at 0, such as tanh. What lines add to the
score, or put in its place, does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from math import inf, isnan
from typing import NamedTuple

from ...evaluate import of_constants
from ...ir import Apply, Const, Expr, Symbol, Type, Variant, const, symbol, walk
from ...operators import OPERATORS
from ..algebra.ranges import StaticRanges
from .gradient import final_score

LOWEST = -64.0  # exponents relative to such a maximum lose 2^-18 at most; usual caps of scores are 20 to 50


class Bounds(NamedTuple):
    """What a float lies between."""

    low: float
    high: float


_ANY, _ZERO = Bounds(-inf, inf), Bounds(0.0, 0.0)
_INFINITIES = (Bounds(-inf, -inf), Bounds(inf, inf))


@lru_cache(maxsize=256)
def may_be_low(variant: Variant) -> bool:
    """Whether score lines may bring a score below LOWEST."""
    return bool(variant.scores) and lowest(variant) < LOWEST


def lowest(variant: Variant) -> float:
    """A number that the final score of a raw score of 0 is never below; -inf if none is found."""
    ranges = StaticRanges(variant)
    root = final_score(variant)
    known: dict[Expr, Bounds] = {}
    of_score: set[Expr] = set()
    for node in walk(root):  # children first
        if node == symbol("score") or any(child in of_score for child in node.children):
            of_score.add(node)
        if node.type is Type.FLOAT:
            known[node] = _bounds(node, known, ranges, node in of_score)
    return known[root].low


def _bounds(node: Expr, known: dict[Expr, Bounds], ranges: StaticRanges, of_score: bool) -> Bounds:
    match node:
        case Const():
            return Bounds(float(node.value), float(node.value))
        case Symbol(name="score"):
            return _ZERO
        case Apply(op="to_float"):
            low, high = ranges.of(node.args[0])
            return Bounds(float(low), float(high))
        case Apply(op="select"):
            # A score of -inf weighs nothing, and loses nothing.
            sides = [known[side] for side in node.args[1:] if known[side] not in _INFINITIES] or [_ANY]
            return Bounds(min(side.low for side in sides), max(side.high for side in sides))
        case Apply():
            return _applied(node.op, [known[arg] for arg in node.args], of_score)
    return _ANY  # of a Load: an input holds anything


def _applied(op: str, args: list[Bounds], of_score: bool) -> Bounds:
    if op in _RULES:
        found = _RULES[op](*args)
        return _ANY if any(map(isnan, found)) else found
    on_floats = OPERATORS[op].on_floats
    assert on_floats is not None
    if all(low == high for low, high in args):
        value = float(of_constants(Apply(Type.FLOAT, op, tuple(const(low) for low, _ in args))))
        if value == 0 or not of_score:
            return _ANY if isnan(value) else Bounds(value, value)
    return Bounds(0.0 if on_floats.never_negative else -on_floats.at_most, on_floats.at_most)


def _times(a: Bounds, b: Bounds) -> Bounds:
    """0 times anything is 0: a raw score of 0 stays 0, whatever it is scaled by."""
    values = [0.0 if 0.0 in pair else pair[0] * pair[1] for pair in product(a, b)]
    return Bounds(min(values), max(values))


def _over(a: Bounds, b: Bounds) -> Bounds:
    if a == _ZERO:
        return _ZERO
    return _ANY if b.low <= 0 <= b.high else _times(a, Bounds(1 / b.high, 1 / b.low))


_RULES: dict[str, Callable[..., Bounds]] = {
    "add": lambda a, b: Bounds(a.low + b.low, a.high + b.high),
    "sub": lambda a, b: Bounds(a.low - b.high, a.high - b.low),
    "neg": lambda a: Bounds(-a.high, -a.low),
    "mul": _times,
    "div": _over,
    "min": lambda a, b: Bounds(min(a.low, b.low), min(a.high, b.high)),
    "max": lambda a, b: Bounds(max(a.low, b.low), max(a.high, b.high)),
}
