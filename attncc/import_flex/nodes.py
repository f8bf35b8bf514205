"""Nodes of the syntax tree of `.attn` that were never text, and what is known of an expression that was written."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Type
from ..source import SourceFile, Span
from ..syntax import ast

_NOWHERE = Span(SourceFile("", ""), 0, 0)


@dataclass(frozen=True)
class Written:
    """An expression, its type in torch, and that in `.attn`: an int may stand for a float of torch's."""

    node: ast.Expr
    kind: Type
    written: Type


def as_int(node: ast.Expr) -> Written:
    return Written(node, Type.INT, Type.INT)


def as_float(node: ast.Expr) -> Written:
    return Written(node, Type.FLOAT, Type.FLOAT)


def as_bool(node: ast.Expr) -> Written:
    return Written(node, Type.BOOL, Type.BOOL)


def name(text: str) -> ast.Name:
    return ast.Name(name=text, span=_NOWHERE)


def boolean(value: bool) -> ast.Expr:
    return ast.Boolean(value=value, span=_NOWHERE)


def literal(value: int | float, text: str = "") -> ast.Expr:
    """A number that isn't negative, as it was written, else as Python prints it."""
    text = text or repr(value)
    return ast.Number(value=value, span=Span(SourceFile("", text), 0, len(text)))


def unary(op: str, operand: ast.Expr) -> ast.Expr:
    return ast.Unary(op=op, operand=operand, span=_NOWHERE)


def binary(op: str, left: ast.Expr, right: ast.Expr) -> ast.Expr:
    return ast.Binary(op=op, left=left, right=right, span=_NOWHERE)


def compare(ops: tuple[str, ...], *operands: ast.Expr) -> ast.Expr:
    return ast.Comparison(ops=ops, operands=operands, span=_NOWHERE)


def call(function: str, *arguments: ast.Expr) -> ast.Expr:
    return ast.Call(function=name(function), arguments=arguments, span=_NOWHERE)


def index(tensor: str, indices: tuple[ast.Expr, ...]) -> ast.Expr:
    return ast.Index(tensor=name(tensor), indices=indices, span=_NOWHERE)


def reduction(function: str, body: ast.Expr, variable: str, count: ast.Expr) -> ast.Expr:
    return ast.Reduction(function=function, body=body, variable=name(variable), count=count, span=_NOWHERE)


def choose(condition: ast.Expr, then: Written, otherwise: Written) -> Written:
    """`then if condition else otherwise`."""
    node = ast.Conditional(then=then.node, condition=condition, otherwise=otherwise.node, span=_NOWHERE)
    return Written(node, widest(then.kind, otherwise.kind), widest(then.written, otherwise.written))


def widest(*kinds: Type) -> Type:
    return next(kind for kind in (Type.FLOAT, Type.INT, Type.BOOL) if kind in kinds)
