"""Bounds of bit operations: which bits of a value are the same for all pairs of a tile.

Over low..high the bits above the highest one in which low and high differ are fixed, and `and`, `or` and `xor` keep
what is known bit by bit: exact for tiles whose sides are aligned powers of two (Morton order and the like).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..ir import Apply, Const, Expr
from .values import Interval

if TYPE_CHECKING:
    from .algebra import Algebra
    from .box import Box


class Bits(NamedTuple):
    """Every bit of `ones` is set in all values over the tile, and no bit outside `may` in any."""

    ones: Expr
    may: Expr


def bits_interval(box: Box, node: Apply) -> Interval:
    """Ends of a bit operation whose result can't be negative."""
    bits = _bits(box, node)
    if bits is None or any(box.algebra.range(end).low < 0 for end in bits):
        return box.anything(node, "it works on the bits of what may be negative")
    low, high = box.algebra.range(node)
    return Interval(bits.ones, bits.may, high - low)


def _bits(box: Box, expr: Expr) -> Bits | None:
    algebra = box.algebra
    if algebra.uniform(expr):
        return Bits(expr, expr)
    if isinstance(expr, Apply):
        sides = [_bits(box, arg) for arg in expr.args] if expr.op in _COMBINED else []
        if len(sides) == 2:
            return None if sides[0] is None or sides[1] is None else _COMBINED[expr.op](algebra, sides[0], sides[1])
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


def _each(bits: Bits | None, move: Callable[[Expr], Expr]) -> Bits | None:
    return bits and Bits(move(bits.ones), move(bits.may))


def _prefix(box: Box, expr: Expr) -> Bits | None:
    """All values from low to high share the bits above the highest one in which these two differ."""
    algebra, (low, high, _) = box.algebra, box.interval(expr)
    if algebra.range(low).low < 0 or algebra.range(high).low < 0:
        return None
    differing = algebra.bitxor(low, high)
    shift = 1
    while shift < algebra.range(differing).high.bit_length():
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
