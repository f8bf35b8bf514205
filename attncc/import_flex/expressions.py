"""One rule for each sort of Python expression: `rule(machine, node, scope)` gives its value."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..diagnostics import Diagnostic
from ..source import Span
from . import calls, library
from .binding import bind, iterate
from .blocks import asked_of_shape
from .fold import truth
from .machine import Machine
from .reductions import reduction
from .subscripts import key_of, looked_up, subscript
from .terms import Captured, Number, Term
from .values import (
    NOTHING,
    Bad,
    Block,
    Class,
    Function,
    Given,
    Instance,
    Items,
    Library,
    Like,
    Lookup,
    Module,
    Nothing,
    Scope,
    Text,
    Value,
    noun,
)

# A number that `.attn` reads as Python does.
_SAME_NUMBER = re.compile(
    r"0[xX][0-9A-Fa-f]+|[0-9][0-9_]*|([0-9][0-9_]*\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
)

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.LShift: "shl", ast.RShift: "shr", ast.BitOr: "or", ast.BitXor: "xor", ast.BitAnd: "and",
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "neg", ast.Invert: "invert", ast.Not: "py_not"}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


def unknown(machine: Machine, node: ast.expr, scope: Scope) -> Value:
    """A construct without a rule. What it reads is found by its names."""
    span = machine.span(node, scope)
    names = [item.id for item in ast.walk(node) if isinstance(item, ast.Name)]
    values = [value for name in names if (value := scope.find(name)) is not None]
    why = Diagnostic("A703", f"{_called(node)} can't be taken", span, help="write one expression of numbers")
    return machine.cannot(span, values, why)


def _called(node: ast.AST) -> str:
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", type(node).__name__).lower()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


# -------------------------------------------------------------------- atoms


def _constant(machine: Machine, node: ast.Constant, scope: Scope) -> Value:
    if node.value is None:
        return NOTHING
    if isinstance(node.value, str):
        return Text(node.value)
    if isinstance(node.value, int | float):
        span = machine.span(node, scope)
        text = repr(node.value) if machine.reads_torch else span.text
        text = text if _SAME_NUMBER.fullmatch(text) else ""
        return Number(value=node.value, text=text, span=span)
    return unknown(machine, node, scope)


def _name(machine: Machine, node: ast.Name, scope: Scope) -> Value:
    found = machine.modules.resolve(scope.find(node.id))
    if found is not None:
        return found
    if path := library.IMPLIED.get(node.id):
        return Library(path)
    span = machine.span(node, scope)
    why = Diagnostic("A706", f"`{node.id}` isn't defined in this file", span, help=library.BRING_IT)
    captured = Captured(node.id, span, "not defined in the file", why=why)
    scope.root.names.setdefault(node.id, captured)  # an import that waits for itself keeps its name
    return captured


def _tuple(machine: Machine, node: ast.Tuple | ast.List, scope: Scope) -> Value:
    return Items(calls.arguments(machine, node.elts, scope))


def _dict(machine: Machine, node: ast.Dict, scope: Scope) -> Value:
    """A dict whose keys are known."""
    items: dict[int | float | str, Value] = {}
    for key, item in zip(node.keys, node.values, strict=True):
        name = None if key is None else key_of(machine.evaluate(key, scope))
        if name is None:
            return unknown(machine, node, scope)
        items[name] = machine.evaluate(item, scope)
    return Lookup(items)


def _lambda(machine: Machine, node: ast.Lambda, scope: Scope) -> Value:
    return calls.function(machine, "lambda", node, scope)


def _named(machine: Machine, node: ast.NamedExpr, scope: Scope) -> Value:
    bind(machine, node.target, machine.evaluate(node.value, scope), scope)
    return machine.evaluate(node.target, scope)


# -------------------------------------------------------------------- operators


def binary(machine: Machine, node: ast.BinOp | ast.AugAssign, left: Value, right: Value, scope: Scope) -> Value:
    if isinstance(left, Items) and isinstance(right, Items) and isinstance(node.op, ast.Add):
        return Items((*left.items, *right.items))
    op = _BINARY.get(type(node.op))
    span = machine.span(node, scope)
    if op is None:
        why = Diagnostic("A703", "`@` can't be taken", span, help=library.ADVICE["matmul"])
        return machine.cannot(span, [left, right], why)
    return machine.apply(op, [left, right], span)


def _binary(machine: Machine, node: ast.BinOp, scope: Scope) -> Value:
    return binary(machine, node, machine.evaluate(node.left, scope), machine.evaluate(node.right, scope), scope)


def _unary(machine: Machine, node: ast.UnaryOp, scope: Scope) -> Value:
    operand = machine.evaluate(node.operand, scope)
    span = machine.span(node, scope)
    if isinstance(node.op, ast.UAdd):
        return operand
    if isinstance(node.op, ast.Not) and (decided := truth_of(operand)) is not None:
        return Number(value=not decided, span=span)
    return machine.apply(_UNARY[type(node.op)], [operand], span)


def _bool(machine: Machine, node: ast.BoolOp, scope: Scope) -> Value:
    """`and` and `or`: what is known decides as in Python, the rest must be bools."""
    decisive = isinstance(node.op, ast.Or)
    value = machine.evaluate(node.values[0], scope)
    for item in node.values[1:]:
        decided = truth_of(value)
        if decided is decisive:
            return value
        right = machine.evaluate(item, scope)
        if decided is None:
            right = machine.apply("py_or" if decisive else "py_and", [value, right], machine.span(node, scope))
        value = right
    return value


def _compare(machine: Machine, node: ast.Compare, scope: Scope) -> Value:
    nodes = [node.left, *node.comparators]
    values = [machine.evaluate(item, scope) for item in nodes]
    span = machine.span(node, scope)
    if not all(type(op) in _COMPARE for op in node.ops):
        return _identity(machine, node, values, scope)
    if all(isinstance(value, Text) for value in values) and len(values) == 2:
        same = values[0] == values[1]
        return Number(value=same == isinstance(node.ops[0], ast.Eq), span=span)
    if not machine.inside and not all(isinstance(value, Term) for value in values):
        return machine.derive(span, values)
    ops = [_COMPARE[type(op)] for op in node.ops]
    return machine.compare(ops, values, [machine.span(item, scope) for item in nodes], span)


def _identity(machine: Machine, node: ast.Compare, values: Sequence[Value], scope: Scope) -> Value:
    """`is None`, `is not None`; `in` and others can't be taken."""
    span = machine.span(node, scope)
    left, right = values[0], values[-1]
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot) and isinstance(right, Nothing):
        if isinstance(left, Captured):
            if machine.shape_of(left) is None:
                return machine.derive(span, [left])
            return Number(value=isinstance(node.ops[0], ast.IsNot), span=span)
        return Number(value=isinstance(left, Nothing) == isinstance(node.ops[0], ast.Is), span=span)
    why = Diagnostic("A703", "this comparison can't be taken", span, help="use <, <=, >, >=, == and !=, joined by `|`")
    return machine.cannot(span, values, why)


def _conditional(machine: Machine, node: ast.IfExp, scope: Scope) -> Value:
    test = machine.evaluate(node.test, scope)
    decided = truth_of(test)
    if decided is not None:
        return machine.evaluate(node.body if decided else node.orelse, scope)
    branches = [machine.evaluate(node.body, scope), machine.evaluate(node.orelse, scope)]
    span = machine.span(node, scope)
    if all(isinstance(branch, Term | Captured) for branch in branches):
        return machine.apply("where", [test, *branches], span)
    return machine.cannot(span, [test, *branches], undecided(span, machine.span(node.test, scope).text))


def undecided(span: Span, test: str) -> Diagnostic:
    return Diagnostic(
        "A709",
        f"which branch is taken depends on `{test}`, which isn't known",
        span,
        help="give its value in the call, as in FILE.py:factory(8, None, torch.empty(2, 64)), or write "
        "torch.where(condition, a, b)",
    )


def truth_of(value: Value) -> bool | None:
    """Whether Python takes a value as true; None if it isn't known."""
    match value:
        case Term():
            return truth(value)
        case Nothing():
            return False
        case Items(items=content) | Text(value=content) | Lookup(items=content):
            return bool(content)
        case Function() | Class() | Module() | Instance():
            return True
    return None


# -------------------------------------------------------------------- attributes, indices, calls


def _attribute(machine: Machine, node: ast.Attribute, scope: Scope) -> Value:
    return member(machine, machine.evaluate(node.value, scope), node, scope)


def member(machine: Machine, base: Value, node: ast.Attribute, scope: Scope) -> Value:
    """`base.attr`."""
    span = machine.span(node, scope)
    found: Value | None = None
    match base:
        case Library():
            found = library.constant(f"{base.path}.{node.attr}", span) or Library(f"{base.path}.{node.attr}")
        case Module():
            found = machine.modules.name_in(base, node.attr)
        case Class():
            found = calls.class_name(machine, base, node.attr)
        case Instance():
            found = _attribute_of(machine, base, node, scope)
        case Captured() | Block():
            found = asked_of_shape(machine, base, node.attr, Given((), {}, span))
        case Term() if node.attr in ("dtype", "device"):
            found = Like(base) if node.attr == "dtype" else Text(span.text)
    if found is not None:
        return found
    help = library.ADVICE.get(node.attr, library.BRING_IT)
    why = Diagnostic("A704", f"`.{node.attr}` of {noun(base)} can't be taken", span, help=help)
    return machine.cannot(span, [base], why)


def _attribute_of(machine: Machine, base: Instance, node: ast.Attribute, scope: Scope) -> Value:
    """`self.width`: what `__init__` has set, a method, or a name of the class; else a value from outside."""
    if node.attr in base.names:
        return base.names[node.attr]
    found = calls.class_name(machine, base.of, node.attr)
    if isinstance(found, Function):
        return calls.bound_to(base, found)
    return found if found and base.known else machine.derive(machine.span(node, scope), [base])


def _call(machine: Machine, node: ast.Call, scope: Scope) -> Value:
    """`function(arguments)`; a method of a number or tensor is a function of it."""
    reduced = reduction(machine, node, scope)
    if reduced is not None:
        return reduced
    if isinstance(node.func, ast.Attribute):
        receiver = machine.evaluate(node.func.value, scope)
        if isinstance(receiver, Lookup) and node.func.attr == "get":
            given = calls.given(machine, node, scope)
            if (found := looked_up(receiver, given.values)) is not None:
                return found
        if isinstance(receiver, Term | Captured | Bad | Items | Block | Lookup):
            return calls.method(machine, receiver, node.func.attr, calls.given(machine, node, scope))
        function = member(machine, receiver, node.func, scope)
    else:
        function = machine.evaluate(node.func, scope)
    return calls.call(machine, function, calls.given(machine, node, scope))


def _comprehension(machine: Machine, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Value:
    """Over items that are known, one after the other."""
    loop = node.generators[0]
    items = iterate(machine.evaluate(loop.iter, scope))
    if items is None or len(node.generators) > 1 or loop.ifs:
        return unknown(machine, node, scope)
    found: list[Value] = []
    for item in items:
        inner = Scope(scope.text, scope, scope.label)
        bind(machine, loop.target, item, inner)
        found.append(machine.evaluate(node.elt, inner))
    return Items(tuple(found))


RULES: dict[type[ast.expr], Callable[[Machine, Any, Scope], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.Lambda: _lambda,
    ast.NamedExpr: _named,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _bool,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.Attribute: _attribute,
    ast.Subscript: subscript,
    ast.Dict: _dict,
    ast.Call: _call,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
}
