"""Const arrays: their declarations, and what an index reads, as choices among the entries."""

from __future__ import annotations

from collections.abc import Sequence

from .. import ir
from ..diagnostics import Edit, Label
from ..ir import Expr, Type
from ..source import Span
from ..syntax import ast
from ..syntax.printer import expression
from . import tensors, types
from .constants import MAX_ENTRIES, Number, Value, as_declared
from .names import Table
from .report import Report, quoted


def declared(
    node: ast.Table, kind: Type, length: Number | None, values: Sequence[Number | None], report: Report
) -> tuple[Number, ...] | None:
    """The entries as the declared type, given what the length and the entries are (None: after an error)."""
    if length is not None and not (type(length) is int and 1 <= length <= MAX_ENTRIES):
        report.error(
            "A213",
            f"a const array can't have length {length}",
            node.length.span,
            help=f"write an int from 1 to {MAX_ENTRIES}; a longer table is an `input`",
        )
        return None
    if length is not None and length != len(values):
        report.error(
            "A213",
            f"`{node.name.name}` has length {length}, and {len(values)} values came",
            node.values[0].span.to(node.values[-1].span),
            labels=[Label(node.length.span, "its length")],
            help=f"write `{len(values)}`",
            instead=node.length.span if len(values) <= MAX_ENTRIES else None,
        )
        return None
    made = [_entry(node, kind, value, at, report) for at, value in zip(node.values, values, strict=True)]
    known = tuple(value for value in made if value is not None)
    return known if length is not None and len(known) == len(made) else None


def defined(node: ast.Table, kind: Type, given: Value, length: int, report: Report) -> tuple[Number, ...] | None:
    """The entries that `-D` gives instead: as many as are declared."""
    if not isinstance(given, list | tuple) or len(given) != length:
        came = f"{len(given)} values" if isinstance(given, list | tuple) else "one value"
        report.error(
            "A208",
            f"`-D {node.name.name}` gives {came}, and the const array has {length}",
            node.name.span,
            help=f"give it a list of {length}, as in `-D {node.name.name}=[{', '.join(['1'] * min(length, 2))}, ...]`",
        )
        return None
    made = [_entry(node, kind, value, None, report) for value in given]
    known = tuple(value for value in made if value is not None)
    return known if len(known) == length else None


def _entry(node: ast.Table, kind: Type, value: Number | None, at: ast.Expr | None, report: Report) -> Number | None:
    """One entry, as a const of the declared type; without a place in the text, `-D` has given it."""
    if value is None:
        return None
    one = ast.Const(span=node.span, name=node.name, type=node.type, value=at or node.length)
    return as_declared(one, kind, value, report, define=at is None)


def load(node: ast.Index, table: Table, indices: list[Expr], report: Report) -> Expr | None:
    """`table[index]`."""
    if len(indices) != 1:
        report.error(
            "A204",
            f"`{node.tensor.name}` takes 1 index, and {len(indices)} came",
            node.span,
            labels=[Label(table.node.span, "declared here")],
            help=f"index it as `{node.tensor.name}[{quoted(node.indices[0].span, '...')}]`",
            instead=Edit(node.span, f"{node.tensor.name}[{expression(node.indices[0])}]"),
        )
        return None
    return chosen(table.values, indices[0], node.span) if tensors.is_int(node.indices[0], indices[0], report) else None


def chosen(values: Sequence[Number], index: Expr, span: Span | None) -> Expr:
    """`values[index]`, 0 (false) where the index is out of range: a balanced tree of choices, one for each place at
    which neighbours differ."""
    nothing = type(values[0])(0)
    steps: list[tuple[int, Number]] = [(0, nothing)]  # the place from which on the entry is this; the first has none
    for place, value in enumerate((*values, nothing)):
        if repr(value) != repr(steps[-1][1]):
            steps.append((place, value))
    return _among(steps, index, span)


def _among(steps: Sequence[tuple[int, Number]], index: Expr, span: Span | None) -> Expr:
    if len(steps) == 1:
        return ir.Const(ir.const(steps[0][1]).type, steps[0][1], span=span)
    middle = len(steps) // 2
    if isinstance(index, ir.Const):
        return _among(steps[:middle] if index.value < steps[middle][0] else steps[middle:], index, span)
    below = types.apply("lt", index, ir.const(steps[middle][0]), span=span)
    sides = (_among(half, index, span) for half in (steps[:middle], steps[middle:]))
    return types.apply("select", below, *sides, span=span)
