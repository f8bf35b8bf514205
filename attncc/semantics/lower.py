"""Checks one variant and lowers it to `ir.Variant`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import ir
from ..diagnostics import Label
from ..ir import Expr
from ..source import Span
from ..syntax import ast
from . import builtins, constants, limits, names, statements, tables, tensors, types, unknown
from .constants import Defines, Number
from .expressions import Lowering
from .names import Mask, Scope, Table, Tensor
from .report import Report
from .workspace import Workspace


def lower(
    node: ast.Variant, masks: Mapping[str, Mask], defines: Defines, report: Report, workspace: Workspace
) -> ir.Variant:
    """The variant's meaning. After an error has been reported the result is only good for further checks."""
    reason = names.reserved(node.name.name, "variant")
    if reason:
        report.error(
            "A104",
            f"`{node.name.name}` can't be the name of a variant: {reason}",
            node.name.span,
            help="choose another name",
        )
    body = _Body(node, masks, defines, report, workspace)
    for statement in node.statements:
        body.lower(statement)
    variant = body.variant()
    statements.check_normalizer(node, variant.normalize, report)
    if not report.has_errors:
        statements.warn(variant, node, body.scope, report)
    return variant


class _Body:
    """The parts of a variant as its statements are read, top to bottom."""

    def __init__(
        self, node: ast.Variant, masks: Mapping[str, Mask], defines: Defines, report: Report, workspace: Workspace
    ) -> None:
        self.node = node
        self.defines = defines
        self.report = report
        self.workspace = workspace
        self.scope = Scope(masks, names.declares(node.statements), report)
        self.lowering = Lowering(self.scope, report, self.workspace)
        self.consts: list[tuple[str, Number | tuple[Number, ...]]] = []
        self.inputs: list[ir.Input] = []
        self.lines: list[ir.Statement] = []
        self.keep_parts = 0
        self.single: dict[type[ast.Statement], tuple[Span, Any]] = {}  # what may be said once: where, and what it gave

    def variant(self) -> ir.Variant:
        said = {kind: value for kind, (_, value) in self.single.items()}
        return ir.Variant(
            self.node.name.name,
            tuple(self.consts),
            tuple(self.inputs),
            tuple(self.lines),
            said.get(ast.Normalize) or "softmax",
            said.get(ast.Sink),
            said.get(ast.Scale),
            said.get(ast.Dropout),
            self.node.comment,
            span=self.node.span,
        )

    def lower(self, statement: ast.Statement) -> None:
        """One statement: the lets that its masks bring come before it."""
        lets_before = len(self.workspace.lets)
        line = _STATEMENTS[type(statement)](self, statement)
        self.lines += list(self.workspace.lets.values())[lets_before:]
        if line is not None:
            self.lines.append(line)

    # ---------------------------------------------------------------- declarations

    def const(self, statement: ast.Const) -> None:
        kind = names.one_of(statement.type, builtins.CONST_TYPES, "the type of a const", self.report, _TYPES_ELSEWHERE)
        name = statement.name.name
        value = constants.constant(
            statement.value, self.lowering.whole(statement.value), "the value of a const", self.report
        )
        if kind is not None and value is not None:
            value = constants.as_declared(statement, kind, value, self.report)
        if kind is not None and name in self.defines:
            value = constants.as_declared(statement, kind, self.defines[name], self.report, define=True)
        meaning = None if kind is None or value is None else ir.Const(kind, value, span=statement.name.span)
        self.scope.declare(statement.name, "const", meaning)
        if meaning is not None:
            self.consts.append((name, meaning.value))

    def table(self, statement: ast.Table) -> None:
        kind = names.one_of(statement.type, builtins.CONST_TYPES, "the type of a const", self.report, _TYPES_ELSEWHERE)
        name, what = statement.name.name, "an entry of a const array"
        length = constants.constant(
            statement.length, self.lowering.whole(statement.length), "the length of a const array", self.report
        )
        entries = [constants.constant(at, self.lowering.whole(at), what, self.report) for at in statement.values]
        values = None if kind is None else tables.declared(statement, kind, length, entries, self.report)
        if kind is not None and values is not None and name in self.defines:
            values = tables.defined(statement, kind, self.defines[name], len(values), self.report)
        self.scope.declare(statement.name, "const", None if values is None else Table(values, statement))
        if values is not None:
            self.consts.append((name, values))

    def input(self, statement: ast.Input) -> None:
        axes = tuple(self._axis(axis) for axis in statement.axes)
        tensor = tensors.declaration(statement, axes, self.report)
        self.scope.declare(statement.name, "input", tensor)
        if tensor is not None:
            self.inputs.append(tensor.input)

    def _axis(self, node: ast.Expr | ast.Wildcard) -> ir.Axis | None:
        if isinstance(node, ast.Wildcard):
            return ir.Axis()
        if isinstance(node, ast.Name) and node.name in builtins.TAGS:
            return ir.Axis(tag=node.name)
        if isinstance(node, ast.Name) and self.scope.find(node) is None:
            unknown.axis(node, self.scope)
            return None
        length = constants.length(node, self.lowering.whole(node), self.report)
        return None if length is None else ir.Axis(length=length)

    def let(self, statement: ast.Let) -> None:
        self.lowering.let(statement, statement.name.name)

    # ---------------------------------------------------------------- lines

    def keep(self, statement: ast.Keep) -> ir.Keep | None:
        condition = self.lowering.condition(statement.condition, "`keep if`")
        if condition is None:
            return None
        self.keep_parts += self.workspace.measure(condition).nodes
        limits.check_keep_parts(self.keep_parts, statement.span)  # before more lines are read: each may have 10,000
        if not statements.check_keep(self.workspace.score_in(condition), self.report):
            return None
        return ir.Keep(condition, span=statement.span)

    def score(self, statement: ast.Score) -> ir.Score | None:
        value = self._float(statement.value, "`score =`")
        work = self.lowering.workspace
        if value is None:
            work.forget_score()  # said once, not again of each line below
            return None
        work.set_score(value)
        return ir.Score(value, span=statement.span)

    def _float(self, node: ast.Expr, what: str) -> Expr | None:
        value = self.lowering.whole(node)
        return types.to_float(value) if value is not None and types.is_number(node, value, what, self.report) else None

    # ---------------------------------------------------------------- what may be said once

    def scale(self, statement: ast.Scale) -> None:
        value = self._float(statement.value, "`scale`")
        good = value is not None and statements.fits_scale(value, statement, self.inputs, self.report)
        self._once(statement, "scale", value if good else None)

    def sink(self, statement: ast.Sink) -> None:
        binding = self.scope.find(statement.input)
        tensor = binding.meaning if binding is not None else None
        if binding is None:
            unknown.value(statement.input, self.scope, "input")
        elif isinstance(tensor, Tensor):
            statements.check_sink(statement, tensor, self.report)
        elif tensor is not None:
            self.report.error(
                "A216",
                f"`{statement.input.name}` is {names.a(binding.kind)}",
                statement.input.span,
                labels=[Label(binding.span, "declared here")],
                help=statements.SINK_HELP,
            )
        self._once(statement, "sink", tensor.input.name if isinstance(tensor, Tensor) else None)

    def normalize(self, statement: ast.Normalize) -> None:
        choices = {name: name for name in builtins.NORMALIZERS}
        self._once(statement, "normalize", names.one_of(statement.kind, choices, "a normalizer", self.report))

    def dropout(self, statement: ast.Dropout) -> None:
        rate = self.lowering.whole(statement.rate)
        self._once(
            statement, "dropout", None if rate is None else statements.dropout_rate(statement, rate, self.report)
        )

    def _once(self, statement: ast.Statement, word: str, value: object) -> None:
        first = self.single.setdefault(type(statement), (statement.span, value))[0]
        if first is not statement.span:
            self.report.error(
                "A219",
                f"a variant has one `{word}` line",
                statement.span,
                "the second",
                labels=[Label(first, "the first")],
                help="remove one",
            )


_TYPES_ELSEWHERE = {
    **dict.fromkeys(("i32", "i64", "int32", "int64"), "write `int`"),
    **dict.fromkeys(("f32", "f16", "bf16", "f64", "float32", "double"), "write `float`"),
}

_STATEMENTS: dict[type, Callable[[_Body, Any], ir.Statement | None]] = {
    ast.Const: _Body.const,
    ast.Table: _Body.table,
    ast.Input: _Body.input,
    ast.Let: _Body.let,
    ast.Keep: _Body.keep,
    ast.Score: _Body.score,
    ast.Scale: _Body.scale,
    ast.Sink: _Body.sink,
    ast.Normalize: _Body.normalize,
    ast.Dropout: _Body.dropout,
}


def check_masks(masks: Mapping[str, Mask], report: Report) -> None:
    """Checks the masks by themselves, so that one that nobody calls yet is checked too."""
    lowering = Lowering(Scope({}, {}, report), report, Workspace())
    for mask in masks.values():
        unknown: list[names.Meaning] = [None] * len(mask.node.parameters)
        lowering.inside(mask, unknown, None)
