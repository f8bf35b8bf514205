"""Comparisons of an int with a constant float, such as `abs(q_idx - kv_idx) <= 129 / 2`, as comparisons of ints."""

from __future__ import annotations

from math import ceil, floor, isfinite

import numpy as np

from ...evaluate import Environment, evaluate
from ...ir import Apply, Const, Expr, const, walk

_MOST = 2**24  # below it fp32 holds each int, and no larger int is rounded to less

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def of_ints(op: str, a: Expr, b: Expr) -> tuple[str, Expr, Expr] | None:
    """The same comparison of ints, for every int; None where a side is neither an int nor a constant."""
    if _int(a) is None:
        a, b, op = b, a, _MIRRORED[op]
    value, bound = _int(a), _constant(b)
    if value is None or bound is None:
        return None
    match op:
        case "le" | "gt":
            return op, value, const(floor(bound))
        case "lt" | "ge":
            return op, value, const(ceil(bound))
    if bound == floor(bound):
        return op, value, const(int(bound))
    return op, const(0), const(1)  # an int never equals it


def _int(expr: Expr) -> Expr | None:
    return expr.args[0] if isinstance(expr, Apply) and expr.op == "to_float" else None


def _constant(expr: Expr) -> float | None:
    """The value of a float of constants, if fp32 and fp64 agree between which ints it lies."""
    if any(not isinstance(node, (Const, Apply)) for node in walk(expr)):
        return None
    wide, narrow = (float(evaluate(expr, Environment({}, float_dtype=dtype))) for dtype in (np.float64, np.float32))
    if not isfinite(wide) or not max(abs(wide), abs(narrow)) < _MOST:
        return None
    return wide if (floor(wide), ceil(wide)) == (floor(narrow), ceil(narrow)) else None
