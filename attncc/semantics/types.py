"""What operators and functions take and give, and where an int becomes a float.

Each function gets the syntax node (for its spans) and the lowered operands, and returns the lowered result, or None
after it has reported what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from .. import ir
from ..diagnostics import Edit
from ..evaluate import of_constants
from ..ir import Expr, Type
from ..operators import WRITTEN
from ..source import Span
from ..syntax import ast
from ..syntax.printer import COMPARED, CONDITION, DIVISOR, FACTOR, expression, tight
from . import builtins
from .report import Report, brief

_INT_DIVISION = ("//", "%")
_BITS = ("&", "|", "^", "<<", ">>")

# What a bit operator on bools should have been, and as which comparison.
_BOOL_FOR_BITS = {"&": "and", "|": "or", "^": "!="}


def a_type(kind: Type) -> str:
    """A type with its article, for messages."""
    return "an int" if kind is Type.INT else f"a {kind.value}"


def to_float(expr: Expr) -> Expr:
    """An int as a float; a float stays what it is."""
    if expr.type is not Type.INT:
        return expr
    if isinstance(expr, ir.Const):
        return ir.Const(Type.FLOAT, float(expr.value), span=expr.span)
    return apply("to_float", expr, span=expr.span)


def alike(*exprs: Expr) -> tuple[Expr, ...]:
    """Numbers as one type: floats if any is a float."""
    if any(expr.type is Type.FLOAT for expr in exprs):
        return tuple(to_float(expr) for expr in exprs)
    return exprs


def apply(op: str, *args: Expr, span: Span | None = None) -> Expr:
    """An operator on these arguments; worked out at once where all are known and the result is exact."""
    expr = ir.apply(op, *args, span=span)
    exact = op == "neg" or Type.FLOAT not in {expr.type, *(arg.type for arg in args)}
    if exact and all(isinstance(arg, ir.Const) for arg in args):
        return ir.Const(expr.type, of_constants(expr), span=span)
    return expr


def all_of(conditions: Iterable[Expr], op: str = "and", span: Span | None = None) -> Expr:
    """Bools joined by `and` or `or`; nested joins of the same kind become one."""
    flat: list[Expr] = []
    for condition in conditions:
        flat += condition.args if isinstance(condition, ir.Apply) and condition.op == op else (condition,)
    return flat[0] if len(flat) == 1 else apply(op, *flat, span=span)


# -------------------------------------------------------------------- operators


def unary(node: ast.Unary, operand: Expr, report: Report) -> Expr | None:
    match node.op:
        case "not":
            return apply("not", operand, span=node.span) if is_bool(node.operand, operand, "`not`", report) else None
        case "~":
            return _invert(node, operand, report)
    if not is_number(node.operand, operand, f"`{node.op}`", report):
        return None
    return operand if node.op == "+" else apply("neg", operand, span=node.span)


def join(node: ast.Binary, parts: list[ast.Expr], sides: list[Expr], report: Report) -> Expr | None:
    """`a and b and c`, or the same of `or`."""
    good = [is_bool(part, side, f"`{node.op}`", report) for part, side in zip(parts, sides, strict=True)]
    return all_of(sides, node.op, node.span) if all(good) else None


def binary(node: ast.Binary, sides: list[Expr], report: Report) -> Expr | None:
    left, right = sides
    what = f"`{node.op}`"
    if node.op in _BITS:
        return _bits(node, left, right, report)
    good = [is_number(node.left, left, what, report), is_number(node.right, right, what, report)]
    if not all(good):
        return None
    if node.op in _INT_DIVISION:
        return _int_division(node, left, right, report)
    if node.op == "/":
        return apply("div", to_float(left), to_float(right), span=node.span)
    return apply(WRITTEN[node.op], *alike(left, right), span=node.span)


def comparison(node: ast.Comparison, operands: list[Expr], report: Report) -> Expr | None:
    """`a < b <= c` is `a < b and b <= c`."""
    _warn_of_bit_precedence(node, report)
    compared = [
        _compare(node, op, pair, exprs, report)
        for op, pair, exprs in zip(node.ops, pairwise(node.operands), pairwise(operands), strict=True)
    ]
    links = [link for link in compared if link is not None]
    return all_of(links, span=node.span) if len(links) == len(compared) else None


def conditional(node: ast.Conditional, parts: list[Expr], report: Report) -> Expr | None:
    """`then if condition else otherwise`; the parts in this order."""
    then, condition, otherwise = parts
    good = is_bool(node.condition, condition, "the condition of `if`", report)
    if (then.type is Type.BOOL) != (otherwise.type is Type.BOOL):
        report.error(
            "A207",
            f"`if` chooses between {a_type(then.type)} and {a_type(otherwise.type)}",
            node.span,
            help="both sides must be bools, or both numbers",
        )
        return None
    return apply("select", condition, *alike(then, otherwise), span=node.span) if good else None


def call(node: ast.Call, function: builtins.Function, args: list[Expr], report: Report) -> Expr | None:
    """A built-in function of the right number of arguments."""
    what = f"`{function.name}`"
    good = [is_number(side, arg, what, report) for side, arg in zip(node.arguments, args, strict=True)]
    if not all(good):
        return None
    operator = function.operator
    if operator is None:
        return _clamp(*alike(*args), span=node.span)
    if operator.gives is Type.INT and args[0].type is Type.INT:  # `floor` of what is whole
        return args[0]
    args = [to_float(arg) for arg in args] if operator.on_ints is None else list(alike(*args))
    if operator.arity == 1:
        return apply(operator.name, args[0], span=node.span)
    result = args[0]
    for arg in args[1:]:
        result = apply(operator.name, result, arg, span=node.span)
    return result


def reduction(node: ast.Reduction, values: list[Expr]) -> Expr:
    """What `any`, `all` or `sum` is over the values of its iterations; a sum adds neighbours first, then their sums."""
    if node.function != "sum":
        return all_of(values, builtins.REDUCTIONS[node.function], node.span)
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [apply("add", *pair, span=node.span) if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


def empty_reduction(node: ast.Reduction, kind: Type) -> Expr:
    """`any`, `all` or `sum` of nothing."""
    nothing: dict[str, bool | int | float] = {"any": False, "all": True, "sum": 0.0 if kind is Type.FLOAT else 0}
    return ir.Const(kind, nothing[node.function], span=node.span)


def element(node: ast.Reduction, value: Expr, report: Report) -> bool:
    """Whether one iteration's value is what the reduction combines."""
    if node.function != "sum":
        return is_bool(node.body, value, f"`{node.function}`", report)
    if value.type is not Type.BOOL:
        return True  # before the text of an error is made: a body may have thousands of iterations
    instead = f"sum({_as_number(brief(tight(node.body, CONDITION), 'condition'))} for ...)"
    return is_number(node.body, value, "`sum`", report, instead)


# -------------------------------------------------------------------- demands


def is_bool(node: ast.Expr, expr: Expr, what: str, report: Report, beside: str = "") -> bool:
    """Whether an operand is a bool; A206 if it isn't. `beside`: what else may be meant than a comparison."""
    if expr.type is Type.BOOL:
        return True
    number = tight(node, COMPARED)
    help, edit = f"compare it: `{brief(number, 'x')} != 0`{beside}", Edit(node.span, f"{number} != 0")
    report.error(
        "A206",
        f"{what} takes a bool",
        node.span,
        f"this is {a_type(expr.type)}",
        help=help,
        instead=None if beside else edit,
    )
    return False


def is_number(node: ast.Expr, expr: Expr, what: str, report: Report, instead: str = "") -> bool:
    """Whether an operand is a number; A201 if it is a bool."""
    if expr.type is not Type.BOOL:
        return True
    text = tight(node, CONDITION)
    report.error(
        "A201",
        f"{what} takes numbers",
        node.span,
        "this is a bool",
        help=f"a bool never becomes a number by itself; write `{instead or _as_number(brief(text, 'condition'))}`",
        instead=Edit(node.span, _as_number(text)),
    )
    return False


def _as_number(condition: str) -> str:
    return f"(1 if {condition} else 0)"


# -------------------------------------------------------------------- the single rules


def _compare(
    node: ast.Comparison, op: str, sides: tuple[ast.Expr, ast.Expr], exprs: tuple[Expr, Expr], report: Report
) -> Expr | None:
    span = sides[0].span.to(sides[1].span)
    left, right = exprs
    if left.type is not Type.BOOL and right.type is not Type.BOOL:
        return apply(WRITTEN[op], *alike(left, right), span=span)
    if left.type is right.type and op in ("==", "!="):
        return apply(WRITTEN[op], left, right, span=span)
    if left.type is right.type:
        report.error(
            "A207",
            f"`{op}` doesn't compare bools",
            span,
            "both are bools",
            help="bools have `==`, `!=`, `and`, `or` and `not`",
        )
        return None
    report.error(
        "A207",
        f"`{op}` compares {a_type(left.type)} with {a_type(right.type)}",
        span,
        help="compare numbers with numbers and bools with bools",
    )
    return None


def _warn_of_bit_precedence(node: ast.Comparison, report: Report) -> None:
    """`a >= b & c < d` is `a >= (b & c) < d`, as in Python, and hardly ever meant."""
    for operand in node.operands[1:-1]:
        if isinstance(operand, ast.Binary) and operand.op in ("&", "|") and not _parenthesised(operand):
            word = _BOOL_FOR_BITS[operand.op]
            report.warning(
                "A223",
                f"`{operand.op}` binds tighter than the comparisons around it",
                operand.span,
                "this is compared, as one int",
                help=f"write `{word}` to join comparisons, or parentheses if this is meant",
                instead=Edit(operand.span, f"{tight(operand.left, COMPARED)} {word} {tight(operand.right, COMPARED)}"),
            )


def _parenthesised(node: ast.Expr) -> bool:
    before = node.span.source.text[: node.span.start].rstrip()
    return node.span.text.startswith("(") or before.endswith("(")


def _bits(node: ast.Binary, left: Expr, right: Expr, report: Report) -> Expr | None:
    if left.type is Type.INT and right.type is Type.INT:
        if node.op in ("<<", ">>"):
            _warn_of_shift(node, right, report)
        return apply(WRITTEN[node.op], left, right, span=node.span)
    edit = None
    if left.type is right.type is Type.BOOL and node.op in _BOOL_FOR_BITS:
        help = f"write `{_BOOL_FOR_BITS[node.op]}`"
        edit = _rewritten(node.span, expression(_of_bools(node)))
    else:
        help = (
            "floats have no bits; `floor(x)` gives an int" if Type.FLOAT in (left.type, right.type) else _BITS_OF_BOOL
        )
    same = left.type is right.type
    kinds = f"both are {left.type.value}s" if same else f"these are {a_type(left.type)} and {a_type(right.type)}"
    report.error("A202", f"`{node.op}` works on the bits of ints", node.span, kinds, help=help, instead=edit)
    return None


def _of_bools(node: ast.Binary) -> ast.Expr:
    """What a bit operator on bools should have been."""
    if node.op == "^":
        return ast.Comparison(span=node.span, ops=("!=",), operands=(node.left, node.right))
    return replace(node, op=_BOOL_FOR_BITS[node.op])


# What a rewritten expression may stand between, without parentheses of its own.
_BEFORE = re.compile(r"(?:^|[(\[,=]|\b(?:if|and|or|else))\s*$")
_AFTER = re.compile(r"\s*(?:$|[)\],}]|\b(?:if|and|or|else|for|let|keep|score|scale|sink|normalize|dropout)\b)")


def _rewritten(span: Span, text: str) -> Edit:
    """An expression in place of another, in parentheses unless it is seen to need none."""
    source = span.source.text
    alone = _BEFORE.search(source[: span.start]) and _AFTER.match(source[span.end :])
    return Edit(span, text if alone else f"({text})")


_BITS_OF_BOOL = "bools are joined by `and`, `or` and `not`; `1 if condition else 0` makes an int of one"


def _invert(node: ast.Unary, operand: Expr, report: Report) -> Expr | None:
    if operand.type is Type.INT:
        return apply("bitnot", operand, span=node.span)
    help = "write `not`" if operand.type is Type.BOOL else "floats have no bits; `floor(x)` gives an int"
    edit = _rewritten(node.span, expression(replace(node, op="not"))) if operand.type is Type.BOOL else None
    kind = f"this is {a_type(operand.type)}"
    report.error("A202", "`~` works on the bits of an int", node.operand.span, kind, help=help, instead=edit)
    return None


def _warn_of_shift(node: ast.Binary, count: Expr, report: Report) -> None:
    if isinstance(count, ir.Const) and not 0 <= count.value <= 63:
        report.warning(
            "A221",
            f"a shift by {count.value} moves every bit out",
            node.right.span,
            help="counts from 0 to 63 shift; all others give 0 (-1 for the right shift of a negative int)",
        )


def _int_division(node: ast.Binary, left: Expr, right: Expr, report: Report) -> Expr | None:
    if left.type is not Type.INT or right.type is not Type.INT:
        floated = node.right if right.type is Type.FLOAT else node.left
        a, b = tight(node.left, FACTOR), tight(node.right, DIVISOR)
        help = f"write `{_floored(node.op, brief(a, 'a'), brief(b, 'b'))}`"
        edit = Edit(node.span, _floored(node.op, a, b))
        report.error("A201", f"`{node.op}` takes ints", floated.span, "this is a float", help=help, instead=edit)
        return None
    if isinstance(right, ir.Const) and right.value == 0:
        _by_zero(node, report)
    return apply(WRITTEN[node.op], left, right, span=node.span)


def _floored(op: str, a: str, b: str) -> str:
    """Floor division or its remainder, of floats."""
    return f"floor({a} / {b})" if op == "//" else f"({a} - floor({a} / {b}) * {b})"


def _by_zero(node: ast.Binary, report: Report) -> None:
    if isinstance(node.right, ast.Number):
        report.error(
            "A210",
            f"`{node.op}` by 0",
            node.right.span,
            help="the result is always 0; divide by another number",
        )
    else:
        report.warning(
            "A222", f"`{node.op}` by a const that is 0", node.right.span, "0 here, so the result is always 0"
        )


def _clamp(x: Expr, low: Expr, high: Expr, *, span: Span) -> Expr:
    """min(max(x, low), high). On floats as choices, so that the derivative at a bound is that of x; NaN becomes `low`,
    as `max` has it, and a `low` that is NaN bounds nothing."""
    if x.type is Type.INT:
        return apply("min", apply("max", x, low, span=span), high, span=span)
    ordered = isinstance(low, ir.Const) and isinstance(high, ir.Const) and low.value <= high.value
    floor = low if ordered else apply("min", low, high, span=span)
    above = apply("ge", x, low, span=span)
    if not isinstance(low, ir.Const):
        above = apply("or", above, apply("ne", low, low, span=span), span=span)
    raised = apply("select", above, x, floor, span=span)
    return apply("select", apply("gt", x, high, span=span), high, raised, span=span)
