"""Evaluates IR with NumPy, by the meaning that each operator's record has.

Ints are int64 and wrap; floats are computed in a chosen dtype (float64 for the oracle, float32 for the executor).
Every operator is total, as docs/language.md says: an index out of range reads 0, `x // 0` and `x % 0` are 0, a shift
count outside 0..63 gives 0 (a right shift of a negative number: -1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .ir import MAX_LENGTH, Apply, Const, Expr, Let, Load, Local, Search, Symbol, Type, walk
from .operators import OPERATORS

Array = NDArray[Any]


@dataclass(frozen=True)
class Environment:
    """What an expression reads: symbols (arrays that broadcast against each other), input arrays, and the lets.

    An input array has one axis for each index of its loads; a scalar input is 0-d. `bfloat16` arrays are allowed.
    """

    symbols: Mapping[str, Any]
    inputs: Mapping[str, Array] = field(default_factory=dict)
    lets: Mapping[str, Let] = field(default_factory=dict)
    float_dtype: DTypeLike = np.float64

    def with_symbols(self, **symbols: Any) -> Environment:
        return Environment({**self.symbols, **symbols}, self.inputs, self.lets, self.float_dtype)


_NOTHING = Environment({})


def evaluate(expr: Expr, environment: Environment) -> Array:
    """The value of one expression: int64, float_dtype or bool, broadcast over the symbols that it reads.

    Raises KeyError with the name of a symbol or input that the environment lacks.
    """
    with np.errstate(all="ignore"):
        return _evaluate(expr, environment, {})


def of_constants(expr: Apply) -> bool | int | float:
    """The value of an operator on constants, at a tenth of what `evaluate` takes for the two or three nodes."""
    with np.errstate(all="ignore"):
        args = [_typed(arg.value, arg.type, _NOTHING) for arg in expr.args if isinstance(arg, Const)]
        value: bool | int | float = _apply(expr, args, _NOTHING.float_dtype).item()
        return value


def _evaluate(expr: Expr, environment: Environment, lets: dict[str, Array]) -> Array:
    """`lets`: values so far. No other value is kept beyond its last use: a thousand arrays may be more than memory."""
    values: dict[Expr, Array] = {}
    for node, read_last in _order(expr):  # not by calls in calls: rules of tiles may be deeper than Python's limit
        values[node] = _compute(node, environment, values, lets)
        for child in read_last:
            del values[child]
    return values[expr]


@lru_cache(maxsize=512)  # rules are evaluated for some tiles at a time
def _order(expr: Expr) -> tuple[tuple[Expr, tuple[Expr, ...]], ...]:
    """The nodes, each after its children, and with those of them that no later one reads."""
    nodes, found = tuple(walk(expr)), []
    read: set[Expr] = set()
    for node in reversed(nodes):
        last = dict.fromkeys(child for child in node.children if child not in read)
        read.update(last)
        found.append((node, tuple(last)))
    return tuple(reversed(found))


def _compute(expr: Expr, environment: Environment, values: dict[Expr, Array], lets: dict[str, Array]) -> Array:
    """The value of a node, given those of its children."""
    match expr:
        case Apply():
            return _apply(expr, [values[arg] for arg in expr.args], environment.float_dtype)
        case Const():
            return _typed(expr.value, expr.type, environment)
        case Symbol():
            return _typed(environment.symbols[expr.name], expr.type, environment)
        case Local():
            if expr.name not in lets:
                lets[expr.name] = _evaluate(environment.lets[expr.name].value, environment, lets)
            return lets[expr.name]
        case Load():
            indices = [values[index] for index in expr.indices]
            return _typed(read(environment.inputs[expr.input], indices), expr.type, environment)
        case Search():
            *indices, length, value = (values[child] for child in expr.children)
            return _first(environment.inputs[expr.input], indices, length, value, expr.above)
    raise TypeError(f"not an expression: {expr!r}")


def _typed(value: Any, kind: Type, environment: Environment) -> Array:
    dtype = np.int64 if kind is Type.INT else np.bool_ if kind is Type.BOOL else environment.float_dtype
    return np.asarray(value).astype(dtype, copy=False)


def read(array: Array, indices: list[Array]) -> Array:
    """`array[indices]`, element by element, with 0 wherever an index is out of range."""
    inside: Array = np.asarray(True)
    for index, size in zip(indices, array.shape, strict=True):
        inside = inside & (index >= 0) & (index < size)
    if array.size == 0:
        return np.zeros(inside.shape, array.dtype)
    safe = tuple(_clamped(index, size - 1) for index, size in zip(indices, array.shape, strict=True))
    return np.where(inside, array[safe], np.zeros((), array.dtype))


def _clamped(x: Array, most: int) -> Array:
    """`np.clip(x, 0, most)`, in a third of its time for the small arrays of tile rules."""
    return np.minimum(np.maximum(x, 0), most)


def _first(array: Array, indices: list[Array], length: Array, value: Array, above: bool) -> Array:
    """Bisection: the place among 0..length of the first entry beyond `value`, if entries never decrease."""
    shape = np.broadcast_shapes(*(item.shape for item in (*indices, length, value)))
    first, end = np.zeros(shape, np.int64), np.broadcast_to(length, shape)
    for _ in range(MAX_LENGTH.bit_length()):
        middle = (first + end) // 2
        entry = read(array, [*indices, middle])
        before = (first < end) & ((entry <= value) if above else (entry < value))
        first, end = np.where(before, middle + 1, first), np.where(before, end, middle)
    return first


def _apply(expr: Apply, args: list[Array], float_dtype: DTypeLike) -> Array:
    if expr.op == "to_float":
        return args[0].astype(float_dtype)
    result: Array = np.asarray(OPERATORS[expr.op].on(expr.args[-1].type).numpy(*args))
    return result
