"""Comparisons of bits as equalities of numbers: positions that agree in some bits are in one row, column or block."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir import Apply, Const, Expr
from .affine import Affine
from .algebra import Algebra

_Pairs = list[tuple[Expr, Expr]]


def equal_where_zero(form: Affine, algebra: Algebra) -> _Pairs:
    """Pairs that are all equal exactly where the form is 0; empty for forms that don't compare bits.

    Each run of a mask's bits is a pair of its own, as each may be a row or a column.
    """
    atoms, zero = list(form.terms), algebra.number(0)
    if len(atoms) == 1 and not form.const:
        op, *sides = _pushed(atoms[0], algebra) or ("",)
        if op == "bitxor":  # x ^ y
            return [(sides[0], sides[1])]
        if op == "bitor":  # x | y
            return [(side, zero) for side in sides]
        if op == "bitand" and isinstance(sides[1], Const):
            return [(run, zero) for run in _in_runs(sides[0], sides[1], algebra)]
    if len(atoms) == 2 and not form.const and sum(form.terms.values()) == 0:
        match atoms:
            case [Apply(op="bitand", args=(x, Const() as mask)), Apply(op="bitand", args=(y, same))] if same is mask:
                return list(zip(_in_runs(x, mask, algebra), _in_runs(y, mask, algebra), strict=True))
    return []


def equal_where_below(form: Affine, algebra: Algebra) -> tuple[_Pairs, bool]:
    """The same of `form <= 0` for `x ^ y <= 2**n - 1`, and whether it is so where they are equal, or where not."""
    for atom, factor in form.terms.items():
        most = -form.const if factor > 0 else form.const - 1
        if len(form.terms) == 1 and abs(factor) == 1 and most >= 0 and most & (most + 1) == 0:
            op, *sides = _pushed(atom, algebra) or ("",)
            if op == "bitxor" and algebra.range(atom).low >= 0:
                size = algebra.number(most + 1)
                return [(algebra.floordiv(sides[0], size), algebra.floordiv(sides[1], size))], factor > 0
    return [], True


def _pushed(expr: Expr, algebra: Algebra) -> tuple[str, Expr, Expr] | None:
    """An operator on bits and its two sides, where what selects some of its bits is done to the sides instead."""
    match expr:
        case Apply(op="bitxor" | "bitor", args=(x, y)):
            return expr.op, x, y
        case Apply(op="floordiv" | "mod" | "bitand", args=(inner, Const() as size)):
            if expr.op == "bitand" or _is_power(int(size.value)):
                found = _pushed(inner, algebra)
                if found is not None and found[0] != "bitand":
                    return found[0], algebra.make(expr.op, found[1], size), algebra.make(expr.op, found[2], size)
            return ("bitand", inner, size) if expr.op == "bitand" else None
    return None


def _is_power(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0


def _in_runs(x: Expr, mask: Const, algebra: Algebra) -> list[Expr]:
    """The bits of x under a mask, those that stand together apart from others."""
    return [algebra.bitand(x, algebra.number(run)) for run in runs(int(mask.value))]


def runs(mask: int) -> Iterator[int]:
    """The masks of the bits that stand together, the last of which goes on for ever in a negative mask."""
    while mask:
        least = mask & -mask
        rest = mask & (mask + least)  # without its lowest run
        yield mask - rest
        mask = rest
