"""The values of terms that are known without running anything: what decides an `if`, a loop or a power in Python."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ..ir import Type
from ..operators import OPERATORS, Operator
from .terms import Apply, Compare, Named, Number, Term

Known = int | float | bool

_MOST_BITS = 4096  # larger ints are left alone: they could fill the memory


def known(term: Term) -> Known | None:
    """The number that a term is in Python, None if it isn't known."""
    match term:
        case Number():
            return term.value
        case Named():
            return known(term.value)
        case Compare():
            return _compared(term)
        case Apply():
            return _applied(term)
    return None


def truth(term: Term) -> bool | None:
    value = known(term)
    return None if value is None else bool(value)


def _compared(term: Compare) -> bool | None:
    values = [known(operand) for operand in term.operands]
    if None in values:
        return None
    return all(_COMPARE[op](a, b) for op, (a, b) in zip(term.ops, pairwise(values), strict=True))


def _applied(term: Apply) -> Known | None:
    values = [known(arg) for arg in term.args]
    function = _OPERATIONS.get(term.op)
    if function is None or None in values:
        return None
    if term.op in ("pow", "shl") and _is_huge(*values):
        return None
    try:
        result = function(*values)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return result if isinstance(result, int | float) else None


def _is_huge(base: Any, exponent: Any) -> bool:
    return isinstance(base, int) and isinstance(exponent, int) and (base.bit_length() + 1) * exponent > _MOST_BITS


def _invert(value: Any) -> Known:
    """torch's `~`: of a bool its negation. TypeError for a float."""
    return not value if isinstance(value, bool) else int(~value)


def _function(item: Operator) -> Callable[[Any], Known]:
    """A function of the language. ValueError where Python's own raises an error, or has an int beyond 64 bits."""

    def apply(x: Any) -> Known:
        with np.errstate(all="ignore"):
            of_int = item.takes(Type.INT) and isinstance(x, int)
            meaning = item.on(Type.INT if of_int else Type.FLOAT).numpy
            value: Known = np.asarray(meaning(np.int64(x) if of_int else np.float64(x))).item()
        if not (math.isfinite(x) and math.isfinite(value)) or (isinstance(value, int) and abs(value) >= 2**62):
            raise ValueError(f"{item.name}({x}) is {value}")
        return value

    return apply


def _truncated_quotient(left: Any, right: Any) -> Known:
    if isinstance(left, float) or isinstance(right, float):
        return float(int(left / right))
    size: int = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "truncdiv": _truncated_quotient, "mod": operator.mod, "pow": operator.pow,
    "neg": operator.neg,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "invert": _invert,
    "shl": operator.lshift, "shr": operator.rshift,
    "logical_and": lambda a, b: bool(a and b), "logical_or": lambda a, b: bool(a or b), "logical_not": operator.not_,
    "py_and": lambda a, b: a and b, "py_or": lambda a, b: a or b, "py_not": operator.not_,
    "min": min, "max": max, "clamp": lambda x, low, high: min(max(x, low), high),
    "where": lambda condition, a, b: a if condition else b,
    "to_int": int, "to_float": float, "to_bool": bool,
    **{name: _function(item) for name, item in OPERATORS.items() if item.function is not None and item.arity == 1},
}  # fmt: skip
