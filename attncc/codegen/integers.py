"""Ints in CUDA: 32-bit where the ranges prove it equal, 64-bit and wrapping elsewhere; floor division; total shifts."""

from __future__ import annotations

from collections.abc import Callable

from ..operators import OPERATORS
from ..operators.ranges import Range
from .nodes import (
    INT,
    LONG,
    Form,
    Node,
    Precedence,
    call,
    cast,
    fits_int,
    infix,
    int_literal,
    recorded,
)

Bounds = tuple[int, int]

_LEAF = "common/integers.cuh"
_P = Precedence


def _forms(*, wrapping: bool) -> dict[str, Form]:
    return {
        name: recorded(item.on_ints.cuda, item.arity, item.on_ints.cost)
        for name, item in OPERATORS.items()
        if item.on_ints is not None and item.on_ints.cuda is not None and item.on_ints.wraps is wrapping
    }


ARITHMETIC = _forms(wrapping=True)
WRAPPING: dict[str, Form] = {
    name: call(f"wrapping_{name}", form.text.count("{"), cost=2, hint=form.hint, include=_LEAF)
    for name, form in ARITHMETIC.items()
}
ALIKE = _forms(wrapping=False)  # their arguments are made of one width
DIVIDE = infix("/", _P.PRODUCT, _P.PRODUCT, cost=6, hint="quotient")
REMAIN = infix("%", _P.PRODUCT, _P.PRODUCT, cost=6, hint="remainder")
FLOOR_DIVIDE = call("floor_divide", 2, cost=10, hint="quotient", include=_LEAF)
FLOOR_REMAINDER = call("floor_remainder", 2, cost=10, hint="remainder", include=_LEAF)
SHIFT_LEFT = infix("<<", _P.SHIFT, _P.UNARY, hint="shifted")
SHIFT_RIGHT = infix(">>", _P.SHIFT, _P.UNARY, hint="shifted")
TOTAL_SHIFT_LEFT = call("shift_left", 2, cost=4, hint="shifted", include=_LEAF)
TOTAL_SHIFT_RIGHT = call("shift_right", 2, cost=4, hint="shifted", include=_LEAF)


def integer(op: str, args: tuple[Node, ...], bounds: Bounds) -> Node:
    """An operator of ints. The node is an `int` exactly if `bounds`, which hold its value, fit one."""
    wide = not fits_int(bounds) or any(arg.ctype == LONG for arg in args)
    rule = RULES.get(op) or (_arithmetic if op in ARITHMETIC else _alike)
    node = rule(op, args, bounds, LONG if wide else INT)
    return cast(node, INT) if fits_int(bounds) else cast(node, LONG)


def _arithmetic(op: str, args: tuple[Node, ...], bounds: Bounds, ctype: str) -> Node:
    on_ints = OPERATORS[op].on_ints
    assert on_ints is not None and on_ints.range is not None
    if not on_ints.range(*(Range(*arg.bounds) for arg in args)).fits(64):
        return WRAPPING[op].node(LONG, *args, bounds=bounds)
    if ctype == LONG and all(arg.ctype == INT for arg in args):  # one wide argument makes C compute in 64 bits
        args = (cast(args[0], LONG), *args[1:])
    return ARITHMETIC[op].node(ctype, *args, bounds=bounds)


def _alike(op: str, args: tuple[Node, ...], bounds: Bounds, ctype: str) -> Node:
    return ALIKE[op].node(ctype, *(cast(arg, ctype) for arg in args), bounds=bounds)


def _division(op: str, args: tuple[Node, ...], bounds: Bounds, ctype: str) -> Node:
    plain, total = (DIVIDE, FLOOR_DIVIDE) if op == "floordiv" else (REMAIN, FLOOR_REMAINDER)
    value, divisor = args
    power = _power_of_two(divisor)
    if value.bounds[0] >= 0 and divisor.bounds[0] > 0:
        form = plain
        args = (cast(value, ctype), divisor)
    elif power is not None and op == "floordiv":
        return SHIFT_RIGHT.node(value.ctype, value, int_literal(power), bounds=bounds)
    elif power is not None:
        return ALIKE["bitand"].node(value.ctype, value, int_literal((1 << power) - 1), bounds=bounds)
    else:
        form = total
        args = (cast(value, ctype), cast(divisor, ctype))
    return form.node(ctype, *args, bounds=bounds)


def _power_of_two(node: Node) -> int | None:
    """The exponent, if the node is a literal power of two."""
    low, high = node.bounds
    is_power = low == high and low > 0 and low & (low - 1) == 0
    return low.bit_length() - 1 if is_power and node.is_leaf else None


def _shift_left(op: str, args: tuple[Node, ...], bounds: Bounds, ctype: str) -> Node:
    value, count = args
    if ctype == INT and value.bounds[0] >= 0 and _within(count, 31):
        return SHIFT_LEFT.node(ctype, value, count, bounds=bounds)
    return TOTAL_SHIFT_LEFT.node(LONG, value, count, bounds=bounds)


def _shift_right(op: str, args: tuple[Node, ...], bounds: Bounds, ctype: str) -> Node:
    value, count = args
    if _within(count, 31 if value.ctype == INT else 63):
        return SHIFT_RIGHT.node(value.ctype, value, count, bounds=bounds)
    return TOTAL_SHIFT_RIGHT.node(LONG, value, count, bounds=bounds)


def _within(count: Node, most: int) -> bool:
    return count.bounds[0] >= 0 and count.bounds[1] <= most


# What depends on ranges: no record has the text of these.
RULES: dict[str, Callable[[str, tuple[Node, ...], Bounds, str], Node]] = {
    "floordiv": _division,
    "mod": _division,
    "shl": _shift_left,
    "shr": _shift_right,
}
