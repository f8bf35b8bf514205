"""Bounds of bit operations: which bits of a value are the same for all pairs of a tile.

Over low..high the bits above the highest one in which low and high differ are fixed, and `and`, `or` and `xor` keep
what is known bit by bit: exact for tiles whose sides are aligned powers of two (Morton order and the like).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...ir import Apply, Const, Expr
from ..algebra.algebra import Algebra
from .tile_box import TileBox
from .values import Interval


class Bits(NamedTuple):
    """Every bit of `ones` is set in all values over the tile, and no bit outside `may` in any."""

    ones: Expr
    may: Expr


def bits_interval(box: TileBox, node: Apply) -> Interval:
    """Ends of a bit operation: unknown bits 0 or 1, the sign bit the other way round."""
    algebra, (ones, may) = box.algebra, _bits(box, node)
    low, high = algebra.range(node)
    if low < 0:
        sign = -1 << max(high, ~low).bit_length()  # above these bits all are the same as the sign
        ones, may = (
            algebra.bitor(ones, algebra.bitand(may, algebra.number(sign))),
            algebra.bitand(may, algebra.bitor(ones, algebra.number(~sign))),
        )
    return Interval(ones, may, high - low)


def _bits(box: TileBox, expr: Expr) -> Bits:
    algebra = box.algebra
    if algebra.uniform(expr):
        return Bits(expr, expr)
    if isinstance(expr, Apply):
        if expr.op in _COMBINED:
            return _COMBINED[expr.op](algebra, *(_bits(box, arg) for arg in expr.args))
        if expr.op in ("floordiv", "mod") and _is_power(expr.args[1]):
            return _each(_bits(box, expr.args[0]), lambda end: algebra.make(expr.op, end, expr.args[1]))
    form = algebra.form(expr)
    if len(form.terms) == 1 and form.const == 0 and expr not in form.terms:
        ((atom, factor),) = form.terms.items()
        if _is_power(algebra.number(factor)):
            return _each(_bits(box, atom), lambda end: algebra.mul(end, algebra.number(factor)))
    return _prefix(box, expr)


def _is_power(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value > 0 and int(expr.value) & (int(expr.value) - 1) == 0


def _each(bits: Bits, move: Callable[[Expr], Expr]) -> Bits:
    return Bits(move(bits.ones), move(bits.may))


def _prefix(box: TileBox, expr: Expr) -> Bits:
    """All values from low to high share the bits above the highest one in which these two differ."""
    algebra, (low, high, _) = box.algebra, box.interval(expr)
    differing = algebra.bitxor(low, high)
    least, most = algebra.range(differing)
    bits, shift = max(most, ~least).bit_length() + (least < 0), 1
    while shift < bits:
        differing = algebra.bitor(differing, algebra.shr(differing, algebra.number(shift)))
        shift *= 2
    return Bits(algebra.bitand(low, algebra.bitnot(differing)), algebra.bitor(high, differing))


def _xor(algebra: Algebra, a: Bits, b: Bits) -> Bits:
    only_a = algebra.bitand(a.ones, algebra.bitnot(b.may))
    only_b = algebra.bitand(b.ones, algebra.bitnot(a.may))
    some = algebra.bitor(a.may, b.may)
    return Bits(algebra.bitor(only_a, only_b), algebra.bitand(some, algebra.bitnot(algebra.bitand(a.ones, b.ones))))


_COMBINED: dict[str, Callable[[Algebra, Bits, Bits], Bits]] = {
    "bitand": lambda algebra, a, b: Bits(algebra.bitand(a.ones, b.ones), algebra.bitand(a.may, b.may)),
    "bitor": lambda algebra, a, b: Bits(algebra.bitor(a.ones, b.ones), algebra.bitor(a.may, b.may)),
    "bitxor": _xor,
}
