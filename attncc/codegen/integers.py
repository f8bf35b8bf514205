"""Ints in CUDA: 32-bit where the ranges prove it equal, 64-bit and wrapping elsewhere; floor division; total shifts."""

from __future__ import annotations

from collections.abc import Callable

from .nodes import (
    INT,
    INT64_MAX,
    INT64_MIN,
    LONG,
    Form,
    Node,
    Precedence,
    call,
    cast,
    fits_int,
    infix,
    int_literal,
    prefix,
)

Bounds = tuple[int, int]

_LEAF = "integers.cuh"
_P = Precedence

ARITHMETIC: dict[str, Form] = {
    "add": infix("+", _P.SUM, _P.SUM, hint="sum"),
    "sub": infix("-", _P.SUM, _P.SUM, hint="difference"),
    "mul": infix("*", _P.PRODUCT, _P.PRODUCT, hint="product"),
    "neg": prefix("-", hint="negated"),
    "abs": call("abs", 1, hint="absolute"),
}
WRAPPING: dict[str, Form] = {
    name: call(f"wrapping_{name}", form.text.count("{"), cost=2, hint=form.hint, include=_LEAF)
    for name, form in ARITHMETIC.items()
}
BITWISE: dict[str, Form] = {
    "bitand": infix("&", _P.BIT_AND, _P.UNARY, hint="bits"),
    "bitor": infix("|", _P.BIT_OR, _P.UNARY, hint="bits"),
    "bitxor": infix("^", _P.BIT_OR, _P.UNARY, hint="bits"),
    "bitnot": prefix("~", hint="bits"),
    "min": call("min", 2, hint="smaller"),
    "max": call("max", 2, hint="larger"),
}
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
    node = _BUILDERS[op](op, args, bounds, LONG if wide else INT)
    return cast(node, INT) if fits_int(bounds) else cast(node, LONG)


def _arithmetic(op: str, args: tuple[Node, ...], bounds: Bounds, ctype: str) -> Node:
    low, high = _EXACT[op](*(arg.bounds for arg in args))
    if low < INT64_MIN or high > INT64_MAX:
        return WRAPPING[op].node(LONG, *args, bounds=bounds)
    if ctype == LONG and all(arg.ctype == INT for arg in args):  # one wide argument makes C compute in 64 bits
        args = (cast(args[0], LONG), *args[1:])
    return ARITHMETIC[op].node(ctype, *args, bounds=bounds)


def _alike(op: str, args: tuple[Node, ...], bounds: Bounds, ctype: str) -> Node:
    return BITWISE[op].node(ctype, *(cast(arg, ctype) for arg in args), bounds=bounds)


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
        return BITWISE["bitand"].node(value.ctype, value, int_literal((1 << power) - 1), bounds=bounds)
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


def _exact_product(a: Bounds, b: Bounds) -> Bounds:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _exact_absolute(a: Bounds) -> Bounds:
    return 0, max(abs(a[0]), abs(a[1]))


# The bounds of the true result, before any wrapping.
_EXACT: dict[str, Callable[..., Bounds]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _exact_product,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": _exact_absolute,
}

_BUILDERS: dict[str, Callable[[str, tuple[Node, ...], Bounds, str], Node]] = {
    **dict.fromkeys(ARITHMETIC, _arithmetic),
    **dict.fromkeys(BITWISE, _alike),
    "floordiv": _division,
    "mod": _division,
    "shl": _shift_left,
    "shr": _shift_right,
}
