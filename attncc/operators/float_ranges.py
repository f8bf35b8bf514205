"""Ranges of floats, and those that operators give: what holds their values as kernels compute them, in fp32.

A range is about values that aren't NaN; whether they may be, it says besides. Kernels round, contract a product and a
sum, and take polynomials for whole tiles: SLACK covers that. No rule looks at what two arguments have in common.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np

# Of the largest number that an operator meets. More than fp32 rounds (2^-24), and than polynomials for tanh err (2^-13:
# `score_form.NEAR_SERIES`).
SLACK = 2.0**-12


class FloatRange(NamedTuple):
    """All floats from `low` to `high`, both included; with `nan` NaN, too."""

    low: float
    high: float
    nan: bool = False

    @property
    def is_bounded(self) -> bool:
        return isfinite(self.low) and isfinite(self.high)

    @property
    def size(self) -> float:
        """The greatest absolute value."""
        return max(abs(self.low), abs(self.high))

    def join(self, other: FloatRange) -> FloatRange:
        return FloatRange(min(self.low, other.low), max(self.high, other.high), self.nan or other.nan)

    def widened(self, size: float = 0.0) -> FloatRange:
        """With what rounding may do to its ends, or to numbers of that size on the way."""
        slack = SLACK * max(self.size, size)
        return FloatRange(self.low - slack, self.high + slack, self.nan) if isfinite(slack) else self


ANY = FloatRange(-inf, inf, True)
Rule = Callable[..., FloatRange]

# -------------------------------------------------------------------- arithmetic


def add(a: FloatRange, b: FloatRange) -> FloatRange:
    if not (a.is_bounded and b.is_bounded):
        return ANY
    return FloatRange(a.low + b.low, a.high + b.high, a.nan or b.nan).widened(max(a.size, b.size))


def sub(a: FloatRange, b: FloatRange) -> FloatRange:
    return add(a, neg(b))


def mul(a: FloatRange, b: FloatRange) -> FloatRange:
    return _corners(lambda x, y: x * y, a, b) if a.is_bounded and b.is_bounded else ANY


def div(a: FloatRange, b: FloatRange) -> FloatRange:
    if not (a.is_bounded and b.is_bounded) or b.low <= 0 <= b.high:
        return ANY
    return _corners(lambda x, y: x / y, a, b)


def _corners(combine: Callable[[float, float], float], a: FloatRange, b: FloatRange) -> FloatRange:
    values = [combine(x, y) for x, y in product((a.low, a.high), (b.low, b.high))]
    return FloatRange(min(values), max(values), a.nan or b.nan).widened()


def neg(a: FloatRange) -> FloatRange:
    return FloatRange(-a.high, -a.low, a.nan)


def absolute(a: FloatRange) -> FloatRange:
    low = 0.0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return FloatRange(low, a.size, a.nan)


def sign(_a: FloatRange) -> FloatRange:
    return FloatRange(-1.0, 1.0)


def least(a: FloatRange, b: FloatRange) -> FloatRange:
    """Of two, the other one where one is NaN."""
    ends = [x.high for x, other in ((a, b), (b, a)) if not x.nan]
    return FloatRange(min(a.low, b.low), min(ends, default=max(a.high, b.high)), a.nan and b.nan)


def greatest(a: FloatRange, b: FloatRange) -> FloatRange:
    return neg(least(neg(a), neg(b)))


# -------------------------------------------------------------------- functions of one float


def increasing(numpy: Callable[..., Any], least_argument: float = -inf) -> Rule:
    """Of a function that never falls; an argument below the least gives NaN."""

    def rule(a: FloatRange) -> FloatRange:
        with np.errstate(all="ignore"):
            low, high = (float(numpy(np.float64(max(end, least_argument)))) for end in (a.low, a.high))
        return FloatRange(low, high, a.nan or a.low < least_argument).widened()

    return rule


def of_wave(a: FloatRange) -> FloatRange:
    """Sine and cosine."""
    return FloatRange(-1.0, 1.0, a.nan or not a.is_bounded).widened()


def of_gate(a: FloatRange) -> FloatRange:
    """x times a probability that grows with x, which falls below 0 by 0.279 at most: silu, gelu."""
    low = max(a.low, -0.28) if a.low < 0 else 0.0
    return FloatRange(low, max(a.high, 0.0), a.nan or a.low == -inf).widened()
