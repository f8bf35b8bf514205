"""Between which numbers all scores of a variant lie, whatever a call brings: what caps, sigmoids and clamps prove."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import isnan

from ...ir import Apply, Const, Expr, Type, Variant, walk
from ...operators import OPERATORS
from ...operators.float_ranges import ANY, FloatRange
from ..algebra.ranges import StaticRanges
from .gradient import final_score

# Choices within choices whose conditions are looked at: `clamp` is two. Each level may double the time.
_DEEPEST = 6
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@lru_cache(maxsize=64)
def score_bounds(variant: Variant) -> tuple[float, float] | None:
    """The least and the greatest final score of a kept pair, in natural units; None where a score may be anything.

    It holds for scores as kernels compute them, NaN apart, which makes its row NaN here as elsewhere. The products
    q·k may be anything, and so may the entries of inputs; ints have the ranges of `StaticRanges`. Only softmax has a
    use for it.
    """
    if variant.normalize != "softmax" or not variant.scores:
        return None
    found = _Ranges(variant).of(final_score(variant))
    return (found.low, found.high) if found.is_bounded else None


class _Ranges:
    """Ranges of the floats of one closed expression."""

    def __init__(self, variant: Variant) -> None:
        self._ints = StaticRanges(variant)
        self._known: dict[Expr, FloatRange] = {}

    def of(self, expr: Expr) -> FloatRange:
        for node in walk(expr):
            if node.type is Type.FLOAT and node not in self._known:
                self._known[node] = self._range(node)
        return self._known[expr]

    def _range(self, node: Expr) -> FloatRange:
        match node:
            case Const():
                value = float(node.value)
                return ANY if isnan(value) else FloatRange(value, value).widened()
            case Apply(op="to_float"):
                low, high = self._ints.of(node.args[0])
                return FloatRange(float(low), float(high)).widened()
            case Apply(op="select"):
                return self._chosen(node, {}, _DEEPEST)
            case Apply():
                on_floats = OPERATORS[node.op].on_floats
                rule = None if on_floats is None else on_floats.range
                return ANY if rule is None else rule(*(self._known[arg] for arg in node.args if arg.type is Type.FLOAT))
        return ANY  # the score before, and entries of inputs

    def _chosen(self, node: Expr, limits: Mapping[Expr, FloatRange], depth: int) -> FloatRange:
        """The range of one side of a choice, where the expressions in `limits` are known to be in these."""
        if node in limits:
            return limits[node]
        if not isinstance(node, Apply) or node.op != "select" or not depth:
            return self._known.get(node, ANY)
        condition, *sides = node.args
        found = [
            self._chosen(side, {**limits, **self._limits(condition, holds, limits)}, depth - 1)
            for side, holds in zip(sides, (True, False), strict=True)
        ]
        return found[0].join(found[1])

    def _limits(self, condition: Expr, holds: bool, known: Mapping[Expr, FloatRange]) -> dict[Expr, FloatRange]:
        """What a comparison of floats that holds, or doesn't, tells of its two sides."""
        if (
            not isinstance(condition, Apply)
            or condition.op not in _OPPOSITE
            or condition.args[0].type is not Type.FLOAT
        ):
            return {}
        op = condition.op if holds else _OPPOSITE[condition.op]
        first, second = condition.args
        pairs = ((first, op, second), (second, _MIRRORED[op], first))
        ranges = {side: known.get(side, self._known[side]) for side in (first, second)}
        return {side: _limited(ranges[side], of, ranges[other], holds) for side, of, other in pairs}


def _limited(side: FloatRange, op: str, other: FloatRange, holds: bool) -> FloatRange:
    """A comparison with NaN never holds."""
    if not holds and other.nan:
        return side
    nan = side.nan and not holds
    if op in ("lt", "le"):
        return FloatRange(side.low, min(side.high, other.high), nan)
    return FloatRange(max(side.low, other.low), side.high, nan)
