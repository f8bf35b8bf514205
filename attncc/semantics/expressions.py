"""Lowers expressions: names resolved, types checked, masks inlined, small loops unrolled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .. import ir
from ..ir import Expr, Type
from ..source import Span
from ..syntax import ast
from . import builtins, constants, tables, tensors, types, unknown
from .names import Mask, Meaning, Scope, Table, Tensor, declares, reserved
from .report import Report
from .workspace import MAX_DEPTH, MAX_NODES, MAX_STEPS, Workspace


@dataclass(frozen=True)
class Lowering:
    """Lowers the expressions of one body. `masks` are the mask calls that the body is inside of, outermost first."""

    scope: Scope
    report: Report
    workspace: Workspace
    masks: tuple[Mask, ...] = ()

    def value(self, node: ast.Expr) -> Expr | None:
        """The typed expression; None after an error, and for what depends on one."""
        work = self.workspace
        work.steps += 1
        if work.depth > MAX_DEPTH or work.steps > MAX_STEPS:
            work.too_large = True
            return None
        work.depth += 1
        expr = _RULES[type(node)](self, node)
        work.depth -= 1
        return expr

    def values(self, *nodes: ast.Expr) -> list[Expr] | None:
        """All of them, or None if any is wrong."""
        lowered = [self.value(node) for node in nodes]
        good = [expr for expr in lowered if expr is not None]
        return good if len(good) == len(lowered) else None

    def condition(self, node: ast.Expr, what: str, beside: str = "") -> Expr | None:
        """A bool, of a size that the phases after this one take."""
        expr = self.whole(node)
        return expr if expr is not None and types.is_bool(node, expr, what, self.report, beside) else None

    def whole(self, node: ast.Expr) -> Expr | None:
        """The value of a whole statement: also checks how large and deep it has become."""
        work = self.workspace
        if work.steps > MAX_STEPS:
            return None  # reported where it was exceeded
        expr = self.value(node)
        outermost, too_much = work.depth == 0, work.too_large
        if outermost:
            work.too_large = False
        size, depth = work.measure(expr) if expr is not None else (0, 0)
        if size <= MAX_NODES and depth <= MAX_DEPTH and not (outermost and too_much):
            return expr
        self.report.error(
            "A220",
            "this expression is too large",
            node.span,
            notes=[
                f"with masks, lets and loops written out, the limits are {MAX_NODES} parts and {MAX_DEPTH} levels, "
                "those of earlier `score =` lines included"
            ],
            help="use shorter loops and fewer lets of lets, or bring the values as an input",
        )
        return None

    # ---------------------------------------------------------------- atoms

    def _number(self, node: ast.Number) -> Expr:
        return ir.Const(ir.const(node.value).type, node.value, span=node.span)

    def _boolean(self, node: ast.Boolean) -> Expr:
        return ir.Const(Type.BOOL, node.value, span=node.span)

    def _name(self, node: ast.Name) -> Expr | None:
        binding = self.scope.find(node)
        if binding is not None:
            return self._bound(node, binding.meaning)
        if node.name not in builtins.VALUES:
            unknown.value(node, self.scope)
            return None
        if node.name == "score" and self.masks:
            kind = self.masks[-1].kind
            help = constants.MASK_BEFORE_SCORE if kind == "mask" else "give it as an argument"
            self.report.error("A301", f"a {kind} can't read `score`", node.span, help=help)
            return None
        return ir.Symbol(builtins.VALUES[node.name].type, node.name, span=node.span)

    def _bound(self, node: ast.Name, meaning: Meaning) -> Expr | None:
        if isinstance(meaning, Tensor):
            if meaning.input.axes:
                unknown.bare_tensor(node, meaning, self.scope)
                return None
            return ir.Load(meaning.input.type, meaning.input.name, (), span=node.span)
        if isinstance(meaning, Table):
            unknown.bare_table(node, meaning, self.scope)
            return None
        return replace(meaning, span=node.span) if isinstance(meaning, ir.Const | ir.Local) else meaning

    # ---------------------------------------------------------------- operators

    def _unary(self, node: ast.Unary) -> Expr | None:
        operand = self.value(node.operand)
        return None if operand is None else types.unary(node, operand, self.report)

    def _comparison(self, node: ast.Comparison) -> Expr | None:
        operands = self.values(*node.operands)
        return None if operands is None else types.comparison(node, operands, self.report)

    def _binary(self, node: ast.Binary) -> Expr | None:
        if node.op in ast.JOINS:
            return self._join(node)
        sides = self.values(node.left, node.right)
        return None if sides is None else types.binary(node, sides, self.report)

    def _join(self, node: ast.Binary) -> Expr | None:
        """A chain of `and` or of `or`, which may be long: one level, without recursion."""
        parts = ast.chain(node)
        sides = self.values(*parts)
        return None if sides is None else types.join(node, parts, sides, self.report)

    def _conditional(self, node: ast.Conditional) -> Expr | None:
        parts = self.values(node.then, node.condition, node.otherwise)
        return None if parts is None else types.conditional(node, parts, self.report)

    def _index(self, node: ast.Index) -> Expr | None:
        binding = self.scope.find(node.tensor)
        indices = self.values(*node.indices)
        if binding is None and node.tensor.name not in builtins.VALUES:
            unknown.value(node.tensor, self.scope, "tensor")
            return None
        meaning = binding.meaning if binding is not None else ir.symbol(node.tensor.name)
        if isinstance(meaning, Table):
            return None if indices is None else tables.load(node, meaning, indices, self.report)
        if isinstance(meaning, ir.Expr) or (meaning is not None and not meaning.input.axes):
            unknown.indexed_value(node, binding, self.scope)
            return None
        if meaning is None or indices is None:
            return None
        return tensors.load(node, meaning, indices, self.workspace.lets, self.report)

    # ---------------------------------------------------------------- functions, masks, loops

    def _call(self, node: ast.Call) -> Expr | None:
        name = node.function.name
        if mask := self.scope.masks.get(name):
            self.scope.used.add(name)
            return self._mask(node, mask)
        function = builtins.FUNCTIONS.get(name)
        args = self.values(*node.arguments)
        if function is None:
            unknown.function(node, self.scope, args)
            return None
        if not _right_number(node, function.signature, function.form.least, function.form.most, self.report):
            return None
        return None if args is None else types.call(node, function, args, self.report)

    def _mask(self, node: ast.Call, mask: Mask) -> Expr | None:
        arguments = [self._argument(argument) for argument in node.arguments]
        expected = len(mask.node.parameters)
        if not _right_number(node, mask.signature, expected, expected, self.report):
            return None
        if mask in self.masks:
            chain = " → ".join(item.name for item in (*self.masks[self.masks.index(mask) :], mask))
            self.report.error(
                "A110",
                f"the {mask.kind} `{mask.name}` uses itself",
                node.span,
                notes=[chain],
                help=f"{mask.kind}s are written out where they are used; they can't be recursive",
            )
            return None
        return self.inside(mask, arguments, node.span)

    def _argument(self, node: ast.Expr) -> Meaning:
        """An expression or, where the bare name of a tensor or a const array stands, that."""
        if isinstance(node, ast.Name):
            binding = self.scope.find(node)
            meaning = binding.meaning if binding is not None else None
            if isinstance(meaning, Table) or (isinstance(meaning, Tensor) and meaning.input.axes):
                return meaning
        return self.value(node)

    def inside(self, mask: Mask, arguments: list[Meaning], call: Span | None) -> Expr | None:
        """The mask's condition, or the function's value, over these arguments (None: unknown). `call` is None where
        only the mask is checked."""
        report = self.report if call is None else self.report.inside(call, mask.name)
        body = mask.node.body
        scope = Scope(mask.visible, declares(body) if isinstance(body, tuple) else {}, report)
        for parameter, argument in zip(mask.node.parameters, arguments, strict=True):
            scope.declare(parameter, "parameter", argument)
        lowering = Lowering(scope, report, self.workspace, (*self.masks, mask))
        if isinstance(mask.node, ast.Function):
            return lowering.whole(mask.node.body)
        if not isinstance(body, tuple):
            return lowering.condition(body, f"the mask `{mask.name}`", "; for a number, write `fn` in place of `mask`")
        return lowering._lines(mask, body)

    def _lines(self, mask: Mask, body: tuple[ast.Let | ast.Keep, ...]) -> Expr | None:
        conditions: list[Expr | None] = []
        for statement in body:
            if isinstance(statement, ast.Let):
                self.let(statement, f"{mask.name}__{statement.name.name}")
            else:
                conditions.append(self.condition(statement.condition, "`keep if`"))
        if not conditions:
            self.report.error(
                "A303",
                f"the mask `{mask.name}` has no `keep if` line",
                mask.node.name.span,
                help="say what it keeps: `keep if ...`",
            )
        good = [condition for condition in conditions if condition is not None]
        return types.all_of(good, span=mask.node.span) if good and len(good) == len(conditions) else None

    def let(self, statement: ast.Let, name: str) -> None:
        """Makes the let under this name in the workspace, binds its own in the scope. A number needs no let. Of a let
        whose name is refused nothing else is said: as in `let q = q * table[q_pos]`, the name is what is wrong."""
        value = None if reserved(statement.name.name, "let") else self.whole(statement.value)
        if value is not None and not isinstance(value, ir.Const):
            value = self.workspace.add_let(name, value, statement.span)
        self.scope.declare(statement.name, "let", value)

    def _reduction(self, node: ast.Reduction) -> Expr | None:
        count = constants.iterations(node.count, self.value(node.count), self.report)
        values: list[Expr] = []
        for i in range(max(count or 0, 1)):
            with self.scope.loop(node.variable, i):
                value = self.value(node.body)
            if value is None or not types.element(node, value, self.report):
                return None
            values.append(value)
        if count is None:
            return None
        return types.reduction(node, values) if count else types.empty_reduction(node, values[0].type)


_RULES: dict[type[ast.Expr], Callable[[Lowering, Any], Expr | None]] = {
    ast.Number: Lowering._number,
    ast.Boolean: Lowering._boolean,
    ast.Name: Lowering._name,
    ast.Unary: Lowering._unary,
    ast.Binary: Lowering._binary,
    ast.Comparison: Lowering._comparison,
    ast.Conditional: Lowering._conditional,
    ast.Call: Lowering._call,
    ast.Index: Lowering._index,
    ast.Reduction: Lowering._reduction,
}


# -------------------------------------------------------------------- single rules


def _right_number(node: ast.Call, signature: str, least: int, most: int | None, report: Report) -> bool:
    given = len(node.arguments)
    if given >= least and (most is None or given <= most):
        return True
    wanted = f"{least}" if least == most else f"{least} or more"
    plural = "" if wanted == "1" else "s"
    report.error(
        "A205",
        f"`{node.function.name}` takes {wanted} argument{plural}, and {given} came",
        node.span,
        help=f"it is `{signature}`",
    )
    return False
