"""Ranges of ints, and those that int operators give: what holds their true results, before any wrapping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import NamedTuple


class Range(NamedTuple):
    """All ints from `low` to `high`, both included."""

    low: int
    high: int

    def fits(self, bits: int) -> bool:
        """Whether a signed int of that many bits holds every value."""
        return -(1 << (bits - 1)) <= self.low and self.high < 1 << (bits - 1)

    def join(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


INT64 = Range(-(2**63), 2**63 - 1)
INT32 = Range(-(2**31), 2**31 - 1)

# -------------------------------------------------------------------- one operator


def add(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high)


def sub(a: Range, b: Range) -> Range:
    return Range(a.low - b.high, a.high - b.low)


def mul(a: Range, b: Range) -> Range:
    return _corners(lambda x, y: x * y, a, b)


def neg(a: Range) -> Range:
    return Range(-a.high, -a.low)


def sign(a: Range) -> Range:
    return Range((a.low > 0) - (a.low < 0), (a.high > 0) - (a.high < 0))


def least(a: Range, b: Range) -> Range:
    return Range(min(a.low, b.low), min(a.high, b.high))


def greatest(a: Range, b: Range) -> Range:
    return Range(max(a.low, b.low), max(a.high, b.high))


def bitnot(a: Range) -> Range:
    return Range(~a.high, ~a.low)


def _hull(values: Iterable[int]) -> Range:
    known = list(values)
    return Range(min(known), max(known))


def _corners(combine: Callable[[int, int], int], a: Range, b: Iterable[int]) -> Range:
    return _hull(combine(x, y) for x, y in product(a, b))


def floordiv(a: Range, b: Range) -> Range:
    """Over one sign of the divisor, the extreme quotients are at its ends; x // 0 is 0."""
    divisors = [x for x in (b.low, b.high, -1, 1) if x != 0 and b.low <= x <= b.high]
    quotients = [x // y for x, y in product(a, divisors)]
    return _hull(quotients + [0] * (b.low <= 0 <= b.high))


def mod(a: Range, b: Range) -> Range:
    """A remainder has its divisor's sign and is nearer to 0; x % 0 is 0."""
    if b.low == b.high != 0 and a.low // b.low == a.high // b.low:
        return Range(a.low % b.low, a.high % b.low)
    high = max(b.high - 1, 0)
    if a.low >= 0 and b.low > 0:
        high = min(high, a.high)
    return Range(min(b.low + 1, 0), high)


def _bits(*args: Range) -> int:
    return max(x.bit_length() for arg in args for x in (arg.low, ~arg.low, arg.high, ~arg.high) if x >= 0)


def bitand(a: Range, b: Range) -> Range:
    """Not above either argument that can't be negative, and not negative if one can't be."""
    ceilings = [x.high for x in (a, b) if x.low >= 0]
    if ceilings:
        return Range(0, min(ceilings))
    width = _bits(a, b)
    return Range(-(1 << width), max(a.high, b.high))


def bitor(a: Range, b: Range) -> Range:
    width = _bits(a, b)
    if a.low >= 0 and b.low >= 0:
        return Range(max(a.low, b.low), (1 << width) - 1)
    return Range(-(1 << width), (1 << width) - 1)


def bitxor(a: Range, b: Range) -> Range:
    width = _bits(a, b)
    return Range(0 if a.low >= 0 and b.low >= 0 else -(1 << width), (1 << width) - 1)


def _counts(count: Range) -> list[int]:
    """The ends of the counts that shift; the others give 0 or the sign."""
    inside = Range(max(count.low, 0), min(count.high, 63))
    return [inside.low, inside.high] if inside.low <= inside.high else []


def shl(a: Range, count: Range) -> Range:
    shifted = [x << y for x, y in product(a, _counts(count))]
    return _hull(shifted + [0] * (count.low < 0 or count.high > 63))


def shr(a: Range, count: Range) -> Range:
    outside = [x >> 63 for x in a] if count.low < 0 or count.high > 63 else []
    return _hull([x >> y for x, y in product(a, _counts(count))] + outside)


def absolute(a: Range) -> Range:
    low = 0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return Range(low, max(-a.low, a.high))
