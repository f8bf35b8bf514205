"""What is known when a kernel is built: consts, `-D` defines, loop counts, axis lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from .. import ir
from ..diagnostics import AttnccError, Diagnostic, did_you_mean
from ..evaluate import Environment, evaluate
from ..ir import Expr, Type
from ..syntax import ast
from . import builtins
from .report import Report, quoted
from .types import a_type

Number = int | float | bool
Value = Number | list[Number] | tuple[Number, ...]  # of a const, or of a const array
Defines = Mapping[str, Value]
MAX_ENTRIES = 256  # of a const array: each read is written out as choices among them

MASK_BEFORE_SCORE = "what is kept is decided before any score is known; to lower a score, write `score = ...`"
NO_DEFINES: Defines = MappingProxyType({})
MAX_FLOAT = 3.4028234663852886e38  # of f32
RANGES = {
    Type.INT: "ints go from -9223372036854775808 to 9223372036854775807",
    Type.FLOAT: "floats are f32: up to 3.4e38 in size",
}


def checked_defines(defines: Defines) -> Defines:
    """The defines as Python numbers, NumPy's scalars among them. AttnccError A114 or A208 for what is none."""
    if not isinstance(defines, Mapping):
        came = f"came {type(defines).__name__}"
        raise AttnccError(Diagnostic("A114", "`defines` is not a mapping", notes=(came,), help='write {"width": 512}'))
    return {name: _define(name, value) for name, value in defines.items()}


def _define(name: object, value: object) -> Value:
    if not isinstance(name, str):
        what = f"{name!r} in `defines` is a {type(name).__name__}, and names no const"
        raise AttnccError(Diagnostic("A114", what, help='names are strings: {"width": 512}'))
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(_number(name, item) for item in value)
    return _number(name, value)


def _number(name: str, value: object) -> Number:
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, bool | int | float):
        what = f"the define `{name}` is {value!r:.40}, of type {type(value).__name__}"
        raise AttnccError(Diagnostic("A208", what, help="consts are ints, floats or bools, or lists of them"))
    return number


def in_range(value: Number) -> bool:
    """Whether an int fits 64 bits, and a float f32."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return math.isfinite(value) and abs(value) <= MAX_FLOAT


def constant(node: ast.Expr, expr: Expr | None, what: str, report: Report) -> Number | None:
    """The value of an expression of consts. None after an error: A211 where it isn't known when the kernel is built."""
    if expr is None:
        return None
    for part in ir.walk(expr):
        if isinstance(part, ir.Symbol | ir.Local | ir.Load):
            name = part.input if isinstance(part, ir.Load) else part.name
            report.error(
                "A211",
                f"{what} must be known when the kernel is built",
                part.span or node.span,
                f"`{name}` isn't known then",
                help="use numbers and consts only",
            )
            return None
    value: Number = evaluate(expr, Environment({})).item()
    if not in_range(value):
        report.error("A209", f"{what} is {value}, which doesn't fit a float (f32)", node.span, help=RANGES[Type.FLOAT])
        return None
    return value


def iterations(node: ast.Expr, expr: Expr | None, report: Report) -> int | None:
    """The count of an unrolled loop: an int from 0 to 64."""
    value = constant(node, expr, "the count of a loop", report)
    if value is None:
        return None
    if type(value) is int and 0 <= value <= builtins.MAX_ITERATIONS:
        return value
    report.error(
        "A212",
        f"a loop can't run {value} times",
        node.span,
        help=f"each iteration is written out, so there can be 0 to {builtins.MAX_ITERATIONS}",
    )
    return None


def length(node: ast.Expr, expr: Expr | None, report: Report) -> int | None:
    """The fixed length of an axis: an int from 1 to 2**31 - 1."""
    value = constant(node, expr, "the length of an axis", report)
    if value is None:
        return None
    if type(value) is int and 1 <= value < 2**31:
        return value
    report.error(
        "A213",
        f"an axis can't have length {value}",
        node.span,
        help="write an int from 1 to 2147483647, a tag, or `_` for any length",
    )
    return None


def as_declared(
    statement: ast.Const, kind: Type, value: Value, report: Report, *, define: bool = False
) -> Number | None:
    """The value as the const's type: an int becomes a float where one is declared, nothing else changes."""
    if isinstance(value, list | tuple):
        what = f"`-D {statement.name.name}` gives a list, and the const is one {kind.value}"
        report.error("A208", what, statement.name.span, help=f"give it {a_type(kind)}")
        return None
    given = ir.const(value).type
    if given is Type.INT and kind is Type.FLOAT:
        value, given = float(value), kind
    if given is kind and in_range(value):
        return value
    name = statement.name.name
    if given is kind:
        report.error("A209", f"`-D {name}={value}` doesn't fit {a_type(kind)}", statement.name.span, help=RANGES[kind])
        return None
    where = f"`-D {name}={value}` gives {a_type(given)}" if define else f"its value is {a_type(given)}"
    text = quoted(statement.value.span, "x")
    whole = f"write `{int(value)}`" if float(value).is_integer() else f"write `floor({text})`"
    advice = {
        (Type.FLOAT, Type.INT): f"{whole}, or declare the const as a float",
        (Type.INT, Type.BOOL): f"write `{text} != 0`, or declare the const as an int",
    }.get((given, kind), f"declare the const as {a_type(given)}")
    report.error(
        "A208",
        f"the const `{name}` is {a_type(kind)}, but {where}",
        statement.name.span if define else statement.value.span,
        help=f"give it {a_type(kind)}" if define else advice,
        instead=None if define else statement.value.span,
    )
    return None


def check_defines(defines: Defines, module: ast.Module, report: Report) -> None:
    """Every define must name a const of some variant of the file (A114); it has no span, having no source."""
    variants = [item for item in module.items if isinstance(item, ast.Variant)]
    consts = {s.name.name for variant in variants for s in variant.statements if isinstance(s, ast.Const | ast.Table)}
    for name in defines:
        if name not in consts:
            known = f"the file's consts: {', '.join(sorted(consts))}" if consts else "the file has no consts"
            advice = did_you_mean(name, consts) or "a define overrides a `const`; inputs are given at each call"
            report.found.add(
                Diagnostic("A114", f"`{name}` names no const of {module.span.source.path}", notes=(known,), help=advice)
            )
