"""A305: score lines that give some pairs a very low finite number, as masks of floats do.

Kernels compute such pairs, and other scores of the row lose nothing (templates/softmax/low_scores_softmax.cuh). But no
tile is skipped. And fp32 rounds the lse of a row of such scores alone at the size of the number, which its gradients
show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .. import ir
from ..diagnostics import Edit
from ..ir import Expr, Type
from ..source import Span
from ..syntax import ast
from ..syntax.printer import expression
from .report import Report

LOW = -1e4  # its lse is off by up to 5e-4 in fp32, and gradients are by as much of their size
_MINUS_INFINITY = "log(0.0)"  # which has no literal
_MOST = 10_000  # places looked at: lines that read the score twice, at other factors, have 2 ** lines of them
_NOTE = "no tile is skipped for it, and fp32 can't hold the lse of a row of such scores alone, which gradients need"
_WHY = ": it is exact, and skips tiles"
_KEEP = f"write `keep if` and the condition under which a pair stays{_WHY}"
_LONGEST = 80  # characters of a mask that a help text holds


@dataclass(frozen=True)
class _Place:
    """A part of what becomes the score: `factor` times the expression is added to it."""

    expr: Expr
    lines: int  # score lines above it
    factor: float = 1.0
    of_some: bool = False  # whether it is so of some pairs alone
    largest: ir.Const | None = None  # of the constants that make up the factor
    becomes_score: bool = True  # and nothing else; so an int of it may be a float


@dataclass(frozen=True)
class _Low:
    """A number that makes some scores low."""

    value: float
    number: ir.Const
    instead: str  # what may stand in its place; empty where -inf may not


def warn(variant: ir.Variant, node: ast.Variant, report: Report) -> None:
    """A305 for each such number. Other normalizers than softmax take no maximum."""
    if variant.normalize != "softmax":
        return
    lines = [item for item in node.statements if isinstance(item, ast.Score)]
    masks = [_as_keep(line, score, variant) for line, score in zip(lines, variant.scores, strict=True)]
    marked = {low.number.span or node.span: low for low in _found(variant)}  # a number may be reached in many ways
    for span, low in marked.items():
        help, edit = _help(low, span, next((item for item in masks if item and item.span.holds(span)), None), node)
        report.error(
            "A305",
            f"some pairs get a score of {low.value:g}, where a mask would leave them out",
            span,
            "a low number, but no mask",
            notes=[_NOTE],
            help=help,
            instead=edit,
            severity="warning",
        )


def _help(low: _Low, span: Span, keep: Edit | None, node: ast.Variant) -> tuple[str, Edit | None]:
    if keep is not None:
        return (f"write `{keep.text}`{_WHY}" if len(keep.text) <= _LONGEST else _KEEP), keep
    if low.instead and span.source is node.span.source:
        return f"write `{low.instead}`, which is exact; or `keep if`, which skips tiles too", Edit(span, low.instead)
    return _KEEP, None


def _as_keep(line: ast.Score, score: ir.Score, variant: ir.Variant) -> Edit | None:
    """`score = score if condition else -1e9`, or the other way round, as a mask."""
    chosen, value = line.value, score.value
    if not (isinstance(chosen, ast.Conditional) and isinstance(value, ir.Apply) and value.op == "select"):
        return None
    condition, *sides = value.args
    unchanged = [isinstance(side, ir.Symbol) and side.name == "score" for side in sides]
    constant = [isinstance(side, ir.Const) for side in sides]
    if "score" in ir.reads(variant, condition) or sorted(zip(unchanged, constant, strict=True)) != _ONE_OF_EACH:
        return None
    kept = chosen.condition
    kept = kept if unchanged[0] else ast.Unary(span=kept.span, op="not", operand=kept)
    return Edit(line.span, f"keep if {expression(kept)}")


_ONE_OF_EACH = [(False, True), (True, False)]


def _found(variant: ir.Variant) -> Iterator[_Low]:
    """From the last score line up, through what is added, chosen and multiplied by numbers: `tanh` bounds the rest."""
    scores, lets = variant.scores, variant.lets
    above = _lines_above(variant)
    seen: set[_Place] = set()
    pending = [_Place(scores[-1].value, len(scores) - 1)] if scores else []
    while pending and len(seen) < _MOST:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        match place.expr:
            case ir.Const():
                yield from _of_number(place, place.expr)
            case ir.Symbol(name="score") if place.lines:
                pending.append(replace(place, expr=scores[place.lines - 1].value, lines=place.lines - 1))
            case ir.Local(name=name, type=kind):
                alone = place.becomes_score and kind is Type.FLOAT
                pending.append(replace(place, expr=lets[name].value, lines=above[name], becomes_score=alone))
            case ir.Apply(op="mul") if factor := _factor(place.expr):
                pending.append(_multiplied(place, *factor))
            case ir.Apply(op=op, args=args):
                pending += _parts(place, op, args)


def _lines_above(variant: ir.Variant) -> dict[str, int]:
    """How many score lines stand above each let."""
    count, found = 0, {}
    for item in variant.statements:
        count += isinstance(item, ir.Score)
        if isinstance(item, ir.Let):
            found[item.name] = count
    return found


def _parts(place: _Place, op: str, args: tuple[Expr, ...]) -> list[_Place]:
    if op == "select":
        return [replace(place, expr=side, of_some=True) for side in args[1:]]
    if op in ("add", "to_float"):
        return [replace(place, expr=arg) for arg in args]
    if op in ("sub", "neg"):
        *first, last = (replace(place, expr=arg) for arg in args)
        return [*first, replace(last, factor=-last.factor)]
    return []


def _factor(product: ir.Apply) -> tuple[ir.Const, Expr] | None:
    """A number and what it multiplies."""
    left, right = product.args
    if isinstance(left, ir.Const):
        return left, right
    return (right, left) if isinstance(right, ir.Const) else None


def _multiplied(place: _Place, number: ir.Const, other: Expr) -> _Place:
    largest = max(filter(None, (number, place.largest)), key=lambda item: abs(item.value))
    of_some = place.of_some or _is_one_less_flag(other)
    return replace(place, expr=other, factor=place.factor * number.value, largest=largest, of_some=of_some)


def _is_one_less_flag(expr: Expr) -> bool:
    """`1 - attention_mask[b, kv_idx]`, `1 - (1 if near else 0)`."""
    if not (isinstance(expr, ir.Apply) and expr.op == "sub"):
        return isinstance(expr, ir.Apply) and expr.op == "to_float" and _is_one_less_flag(expr.args[0])
    one, flag = expr.args
    flag = flag.args[0] if isinstance(flag, ir.Apply) and flag.op == "to_float" else flag
    is_flag = isinstance(flag, ir.Load) or (isinstance(flag, ir.Apply) and flag.op == "select")
    return is_flag and isinstance(one, ir.Const) and one.value == 1


def _of_number(place: _Place, number: ir.Const) -> Iterator[_Low]:
    value = place.factor * number.value
    if not place.of_some or not -math.inf < value <= LOW:
        return
    if place.largest is not None and abs(place.largest.value) > abs(number.value):
        yield _Low(value, place.largest, "")  # it multiplies 0 too, and 0 * inf is NaN
    else:
        instead = ("-" if place.factor < 0 else "") + _MINUS_INFINITY
        yield _Low(value, number, instead if place.becomes_score else "")
