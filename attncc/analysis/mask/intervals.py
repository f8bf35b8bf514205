"""Interval rules of the int operators: from the ends of the arguments over a tile to the ends of the result.

Each rule is given a canonical node with at least one argument that varies over the tile. Widths are static bounds of
high - low: they say how many entries a lookup can meet.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from ...ir import Apply, Expr
from ...operators import OPERATORS
from ..algebra.ranges import INT64, Range
from .bits import bits_interval
from .tile_box import TileBox
from .values import WRAPS, Interval


def _may_wrap(box: TileBox, divisor: Expr, *ends: Expr) -> bool:
    """Whether the least int may be divided by -1, the one quotient that 64 bits can't hold."""
    by = box.algebra.range(divisor)
    return by.low <= -1 <= by.high and any(box.algebra.range(end).low == INT64.low for end in ends)


def _floordiv(box: TileBox, node: Apply) -> Interval:
    """x // c is monotone in x for a fixed c, growing or falling with its sign; 0 for c = 0."""
    x, divisor = node.args
    if not box.algebra.uniform(divisor):
        return box.anything(node, "it divides by what varies over the tile")
    interval, by = box.interval(x), box.algebra.range(divisor)
    if _may_wrap(box, divisor, interval.low, interval.high):
        return box.anything(node, WRAPS)
    ends = [box.algebra.floordiv(end, divisor) for end in (interval.low, interval.high)]
    if by.low > 0:
        return Interval(ends[0], ends[1], -(-interval.width // by.low))
    return Interval(box.algebra.min(*ends), box.algebra.max(*ends), interval.width)


def _mod(box: TileBox, node: Apply) -> Interval:
    """Within one quotient x % c grows with x; across two it may be all that a remainder by c can be."""
    x, divisor = node.args
    if not box.algebra.uniform(divisor):
        return box.anything(node, "it divides by what varies over the tile")
    algebra, (low, high, _) = box.algebra, box.interval(x)
    by = algebra.range(divisor)
    if _may_wrap(box, divisor, low, high):
        return box.anything(node, WRAPS)
    within = algebra.compare("eq", algebra.floordiv(low, divisor), algebra.floordiv(high, divisor))
    least = algebra.number(0) if by.low > 0 else algebra.min(algebra.add(divisor, algebra.number(1)), algebra.number(0))
    most = algebra.max(algebra.sub(divisor, algebra.number(1)), algebra.number(0))
    return Interval(
        algebra.select(within, algebra.mod(low, divisor), least),
        algebra.select(within, algebra.mod(high, divisor), most),
        _static_width(box, node),
    )


def _mul(box: TileBox, node: Apply) -> Interval:
    """The extremes of a product are at the corners of its arguments' box."""
    algebra = box.algebra
    sides = [box.interval(arg) for arg in node.args]
    ranges = [algebra.range(end) for side in sides for end in side[:2]]
    if not _corner_range(ranges).fits(64):
        return box.anything(node, WRAPS)
    a, b = sides
    if algebra.range(a.low).low >= 0 and algebra.range(b.low).low >= 0:
        return Interval(algebra.mul(a.low, b.low), algebra.mul(a.high, b.high), _static_width(box, node))
    corners = [algebra.mul(x, y) for x, y in product(dict.fromkeys(a[:2]), dict.fromkeys(b[:2]))]
    return Interval(algebra.min(*corners), algebra.max(*corners), _static_width(box, node))


def _corner_range(ranges: list[Range]) -> Range:
    values = [x * y for a, b in product(ranges[:2], ranges[2:]) for x, y in product(a, b)]
    return Range(min(values), max(values))


def _extreme(box: TileBox, node: Apply) -> Interval:
    intervals = [box.interval(arg) for arg in node.args]
    combine = box.algebra.min if node.op == "min" else box.algebra.max
    low, high = combine(*(i.low for i in intervals)), combine(*(i.high for i in intervals))
    return Interval(low, high, max(i.width for i in intervals))


def _abs(box: TileBox, node: Apply) -> Interval:
    algebra, (low, high, width) = box.algebra, box.interval(node.args[0])
    if min(algebra.range(end).low for end in (node.args[0], low, high)) == INT64.low:
        return box.anything(node, WRAPS)
    least = algebra.max(low, algebra.neg(high), algebra.number(0))
    return Interval(least, algebra.max(high, algebra.neg(low)), width)


def _select(box: TileBox, node: Apply) -> Interval:
    """One arm's interval where the condition holds for all pairs or none, else the hull of both."""
    algebra, condition = box.algebra, box.truth(node.args[0])
    a, b = box.interval(node.args[1]), box.interval(node.args[2])

    def end(chosen: Expr, other: Expr, hull: Expr) -> Expr:
        return algebra.select(condition.all, chosen, algebra.select(condition.any, hull, other))

    low = end(a.low, b.low, algebra.min(a.low, b.low))
    high = end(a.high, b.high, algebra.max(a.high, b.high))
    width = max(a.width, b.width) if algebra.uniform(node.args[0]) else _static_width(box, node)
    return Interval(low, high, width)


def _shr(box: TileBox, node: Apply) -> Interval:
    """An arithmetic shift is monotone for a fixed count."""
    x, count = node.args
    if not box.algebra.uniform(count):
        return box.anything(node, "it shifts by what varies over the tile")
    interval = box.interval(x)
    return Interval(box.algebra.shr(interval.low, count), box.algebra.shr(interval.high, count), interval.width)


def _static_width(box: TileBox, node: Expr) -> int:
    low, high = box.algebra.range(node)
    return high - low


def _growing(box: TileBox, node: Apply) -> Interval:
    """A function that never falls, as its record says, takes its ends at those of its argument."""
    low, high, _ = box.interval(node.args[0])
    return Interval(box.algebra.make(node.op, low), box.algebra.make(node.op, high), _static_width(box, node))


def interval_of(box: TileBox, node: Apply) -> Interval:
    """The interval of any operator that gives an int."""
    on_ints = OPERATORS[node.op].on_ints
    if on_ints is None:
        return box.anything(node, "it is made of floats")
    return (_growing if on_ints.grows else RULES[node.op])(box, node)


def _may_leave(box: TileBox, node: Apply) -> Interval:
    return box.anything(node, WRAPS)


# Those without `grows` in their record. Sums are atoms only where they may leave 64 bits.
RULES: dict[str, Callable[[TileBox, Apply], Interval]] = {
    "floordiv": _floordiv, "mod": _mod, "mul": _mul, "min": _extreme, "max": _extreme, "abs": _abs,
    "select": _select, "shr": _shr, "bitand": bits_interval, "bitor": bits_interval, "bitxor": bits_interval,
    **dict.fromkeys(("add", "sub", "neg", "bitnot", "shl"), _may_leave),
}  # fmt: skip
