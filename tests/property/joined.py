"""Random comparisons of places that are worth more than each term tells: sums of distances, arcs of remainders, bits of
positions, distances in steps, windows that are moved at a border."""

from __future__ import annotations

from collections.abc import Callable

from attncc.ir import Expr, apply, const, symbol

from .masks import Random, pick
from .places import distance_of, place_of

Kind = Callable[[Random, int], Expr]


def _weighted(random: Random, width: int) -> Expr:
    """abs(dy) + 2 * abs(dx) <= 12, of signs and places of all kinds."""
    total, terms = const(0), int(random.integers(2, 4))
    for _ in range(terms):
        distance, _ = distance_of(random, width)
        shape = pick(random, ("abs", "abs", "abs", "plain", "square"))
        term = {"abs": apply("abs", distance), "plain": distance, "square": apply("mul", distance, distance)}[shape]
        total = apply(pick(random, ("add", "add", "sub")), total, apply("mul", term, _number(random, 1, 4)))
    return apply(pick(random, ("le", "lt", "ge", "eq")), total, _number(random, -4, 20))


def _within_all(random: Random, width: int) -> Expr:
    """Several bounds of sums of the same two distances: the sides of a polygon."""
    (first, _), (second, _) = distance_of(random, width), distance_of(random, width)
    sides = []
    for _ in range(int(random.integers(2, 5))):
        parts = (apply("mul", distance, _number(random, -2, 3)) for distance in (first, second))
        sides.append(apply("le", apply("add", *parts), _number(random, -2, 12)))
    return apply("and", *sides)


def _on_circle(random: Random, width: int) -> Expr:
    """A distance's remainder beside a number, or two, in the ways that people write a torus."""
    distance, _ = distance_of(random, width)
    period = pick(random, (2, 3, 4, 8, width, width, 2 * width, 4 * width))
    if random.random() < 0.3:
        distance = apply("neg", distance)
    moved = apply("mod", apply("add", distance, _number(random, -9, 10)), const(period))
    reach = _number(random, -1, period + 1)
    kind = pick(random, ("one", "one", "both", "nearer", "middle"))
    if kind == "nearer":
        other = apply("mod", apply("neg", distance), const(period))
        return apply("le", apply("min", apply("mod", distance, const(period)), other), reach)
    if kind == "middle":
        centred = apply(
            "sub", apply("mod", apply("add", distance, const(period // 2)), const(period)), const(period // 2)
        )
        return apply(pick(random, ("le", "gt")), apply("abs", centred), reach)
    one = apply(pick(random, ("le", "lt", "ge", "gt", "eq", "ne")), moved, reach)
    if kind == "one":
        return one
    again = apply("mod", apply("add", distance, _number(random, -9, 10)), const(period))
    return apply(
        pick(random, ("and", "or")), one, apply(pick(random, ("le", "ge", "eq")), again, _number(random, 0, period))
    )


def _bits(random: Random, width: int) -> Expr:
    """Bits of places, or of distances, compared with each other, with 0 or a number."""
    axis = pick(random, ("position", "position", "row", "column"))
    q, kv = (place_of(random, side, width, axis) for side in (pick(random, ("q_idx", "q_pos")), "kv_idx"))
    if random.random() < 0.3:
        q, kv = (distance_of(random, width)[0] for _ in range(2))
    mask = const(pick(random, (1, 3, 7, 8, 12, 24, 56, 65, 99, -1, -2, -8, -25, -56)))
    if random.random() < 0.3:
        sides = (apply("bitand", side, mask) for side in (q, kv))
        return apply(pick(random, ("eq", "ne")), *sides)
    joint = apply(pick(random, ("bitxor", "bitxor", "bitor", "bitand")), q, kv)
    chosen = pick(random, ("mask", "mask", "shift", "low", "all"))
    if chosen == "mask":
        joint = apply("bitand", joint, mask)
    elif chosen != "all":
        joint = apply("shr" if chosen == "shift" else "mod", joint, const(pick(random, (1, 2, 3, 4, 8))))
    against = const(pick(random, (0, 0, 0, 1, 3, 7, 8, 15, 16)))
    return apply(pick(random, ("eq", "eq", "ne", "lt", "le", "gt")), joint, against)


def _in_steps(random: Random, width: int) -> Expr:
    """Distances that are listed: in equal steps, or all but one of them."""
    distance, reach = distance_of(random, width)
    first, step = int(random.integers(-reach, reach)), int(random.integers(1, 5))
    listed = [first + step * number for number in range(int(random.integers(3, 8)))]
    if random.random() < 0.2:
        del listed[int(random.integers(len(listed)))]
    if random.random() < 0.3:
        distance, listed = apply("neg", distance), [-value for value in listed]
    return apply("or", *(apply("eq", distance, const(value)) for value in listed))


def _shifted(random: Random, width: int) -> Expr:
    """A window that begins at max(x - r, 0), and is taken back where it would leave the grid."""
    axis, reach = pick(random, ("row", "column")), int(random.integers(1, 4))
    size = width if axis == "column" else int(random.integers(2 * reach + 1, 24))
    q, kv = (place_of(random, side, width, axis) for side in ("q_pos", "kv_idx"))
    back = apply("sub", const(size - reach - 1), q)
    beyond = apply("ge", apply("add", q, const(reach)), const(size))
    first = apply("add", apply("max", apply("sub", q, const(reach)), const(0)), apply("select", beyond, back, const(0)))
    behind = apply("lt", kv, apply("add", first, const(2 * reach + 1)))
    return apply("and", apply("le", first, kv), behind)


def _of_lengths(random: Random, width: int) -> Expr:
    """The same sums with lengths in them, which no constant bounds."""
    distance, _ = distance_of(random, width)
    half = apply("floordiv", symbol(pick(random, ("q_len", "kv_len"))), _number(random, 1, 9))
    return apply("le", apply("add", apply("abs", distance), apply("abs", distance_of(random, width)[0])), half)


def _number(random: Random, low: int, end: int) -> Expr:
    return const(int(random.integers(low, end)))


JOINED: tuple[Kind, ...] = (
    _weighted, _weighted, _within_all, _on_circle, _on_circle, _on_circle, _bits, _bits, _in_steps, _shifted,
    _of_lengths,
)  # fmt: skip
