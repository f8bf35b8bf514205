"""The least and the greatest value of int terms, where a look at the operators tells: enough for usual indices."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..operators import OPERATORS, WHOLE_FUNCTIONS
from .fold import known
from .terms import Apply, Element, Named, Number, Symbol, Term, Variable

# Not negative where their operands aren't.
_KEEP_SIGN = frozenset(
    {
        "mul",
        "truediv",
        "floordiv",
        "truncdiv",
        "shr",
        "shl",
        "and",
        "or",
        "to_int",
        "to_float",
        "to_like",
        *WHOLE_FUNCTIONS,
    }
)
_NEVER_NEGATIVE = frozenset(
    name for name, item in OPERATORS.items() if item.on_floats is not None and item.on_floats.never_negative
)


def least(term: Term, of_elements: float = -math.inf) -> float:
    """A number that a term is never below, given one for elements of tensors; -inf if none is found."""
    value = known(term)
    if value is not None:
        return value
    match term:
        case Named():
            return least(term.value, of_elements)
        case Symbol() | Variable():
            return 0
        case Element():
            return of_elements
        case Apply():
            return _least_applied(term, [least(arg, of_elements) for arg in term.args])
    return -math.inf


def _least_applied(term: Apply, bounds: list[float]) -> float:
    if term.op in _NEVER_NEGATIVE or (term.op in _KEEP_SIGN and min(bounds) >= 0):
        return 0
    rule = _RULES.get(term.op)
    return -math.inf if rule is None else rule(term, bounds)


_RULES: dict[str, Callable[[Apply, list[float]], float]] = {
    "add": lambda term, bounds: sum(bounds),
    "sub": lambda term, bounds: bounds[0] - _greatest(term.args[1]),
    "max": lambda term, bounds: max(bounds),
    "min": lambda term, bounds: min(bounds),
    "clamp": lambda term, bounds: min(max(bounds[0], bounds[1]), bounds[2]),
    "where": lambda term, bounds: min(bounds[1:]),
    "mod": lambda term, bounds: 0 if bounds[1] > 0 else -math.inf,
    "pow": lambda term, bounds: 0 if bounds[0] >= 0 else -math.inf,
}


def _greatest(term: Term) -> float:
    value = known(term)
    if value is not None:
        return value
    match term:
        case Named():
            return _greatest(term.value)
        case Apply(op="min"):
            return min(map(_greatest, term.args))
        case Apply(op="clamp"):
            return _greatest(term.args[2])
        case Apply(op="mod"):  # below a divisor above 0, and of ints at most one less; never above 0 otherwise
            return max(_greatest(term.args[1]) - (1 if _is_int(term) else 0), 0)
    return math.inf


_KEEP_INTS = frozenset({"add", "sub", "mul", "floordiv", "truncdiv", "mod", "neg", "abs", "min", "max", "clamp"})
_OF_INTS = frozenset({"and", "or", "xor", "invert", "shl", "shr", "to_int"})


def _is_int(term: Term) -> bool:
    """Whether a term is known to be an int, whatever captured tensors turn out to be."""
    match term:
        case Named():
            return _is_int(term.value)
        case Number():
            return isinstance(term.value, int)
        case Symbol() | Variable():
            return True
        case Element():
            return term.captured.dtype in ("i32", "i64")
        case Apply():
            return term.op in _OF_INTS or (term.op in _KEEP_INTS and all(map(_is_int, term.args)))
    return False
