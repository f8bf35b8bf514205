"""lark's parse tree becomes the AST: one method for each rule of `grammars/attn.lark`, and no recursion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lark import Token, Tree, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from ..source import SourceFile, Span
from . import ast
from .comments import documentation


def build(tree: Tree[Token], source: SourceFile) -> ast.Module:
    """The AST of a tree of the rule `module`."""
    module = _Builder(source).transform(tree)
    assert isinstance(module, ast.Module)
    return module


Rule = Callable[["_Builder", Meta, Sequence[Any]], Any]


def _node(kind: type[ast.Node], *fields: str) -> Rule:
    """A rule whose children are the fields of its node, in order."""

    def rule(self: _Builder, meta: Meta, children: Sequence[Any]) -> ast.Node:
        values = (str(child) if isinstance(child, Token) else child for child in children)
        return kind(span=self.span(meta), **dict(zip(fields, values, strict=True)))

    return rule


@v_args(meta=True)
class _Builder(Transformer_NonRecursive[Token, Any]):
    """Children arrive as nodes, except tokens (operators, numbers, strings), which arrive as they are."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(visit_tokens=False)
        self.source = source

    def span(self, at: Meta | Token) -> Span:
        assert at.start_pos is not None and at.end_pos is not None
        return Span(self.source, at.start_pos, at.end_pos)

    # ---------------------------------------------------------------- items

    def module(self, meta: Meta, children: Sequence[Any]) -> ast.Module:
        version, *rest = children
        imports = tuple(node for node in rest if isinstance(node, ast.Import))
        return ast.Module(span=self.span(meta), version=version, imports=imports, items=tuple(rest[len(imports) :]))

    def version(self, meta: Meta, children: Sequence[Any]) -> int:
        return _int(children[0])

    def import_(self, meta: Meta, children: Sequence[Any]) -> ast.Import:
        target = children[0]
        return ast.Import(span=self.span(meta), target=target[1:-1] if isinstance(target, Token) else target)

    mask = _node(ast.Mask, "name", "parameters", "body")

    function = _node(ast.Function, "name", "parameters", "body")

    def mask_with_lines(self, meta: Meta, children: Sequence[Any]) -> ast.Mask:
        name, parameters, *lines = children
        return ast.Mask(span=self.span(meta), name=name, parameters=parameters, body=tuple(lines))

    def parameters(self, meta: Meta, children: Sequence[Any]) -> tuple[ast.Name, ...]:
        return tuple(children)

    def variant(self, meta: Meta, children: Sequence[Any]) -> ast.Variant:
        name, *statements = children
        span = self.span(meta)
        comment = documentation(self.source, span.start)
        return ast.Variant(span=span, name=name, statements=tuple(statements), comment=comment)

    def schedule(self, meta: Meta, children: Sequence[Any]) -> ast.Schedule:
        words = [child for child in children if isinstance(child, ast.Name)]
        name, variant, *passes, target = words
        return ast.Schedule(
            span=self.span(meta),
            name=name,
            variant=variant,
            pass_name=passes[0] if passes else None,
            target=target,
            lengths=next((child for child in children if isinstance(child, ast.Lengths)), None),
            settings=tuple(child for child in children if isinstance(child, ast.Setting)),
        )

    def lengths(self, meta: Meta, children: Sequence[Any]) -> ast.Lengths:
        word, written = children
        first, _, last = str(written).partition("..")
        return ast.Lengths(span=self.span(meta), word=word, first=int(first), last=int(last) if last else None)

    def setting(self, meta: Meta, children: Sequence[Any]) -> ast.Setting:
        knob, *values = children
        return ast.Setting(span=self.span(meta), knob=knob, values=tuple(map(_setting_value, values)))

    # ---------------------------------------------------------------- statements

    const = _node(ast.Const, "name", "type", "value")

    def table(self, meta: Meta, children: Sequence[Any]) -> ast.Table:
        name, kind, length, *values = children
        return ast.Table(span=self.span(meta), name=name, type=kind, length=length, values=tuple(values))

    let = _node(ast.Let, "name", "value")
    keep = _node(ast.Keep, "condition")
    score = _node(ast.Score, "value")
    scale = _node(ast.Scale, "value")
    sink = _node(ast.Sink, "input")
    normalize = _node(ast.Normalize, "kind")
    dropout = _node(ast.Dropout, "rate")
    wildcard = _node(ast.Wildcard)

    def input(self, meta: Meta, children: Sequence[Any]) -> ast.Input:
        name, dtype, *rest = children
        axes = rest.pop(0) if rest and isinstance(rest[0], tuple) else ()
        return ast.Input(span=self.span(meta), name=name, dtype=dtype, axes=axes, properties=tuple(rest))

    def axes(self, meta: Meta, children: Sequence[Any]) -> tuple[ast.Expr | ast.Wildcard, ...]:
        return tuple(children)

    # ---------------------------------------------------------------- expressions

    conditional = _node(ast.Conditional, "then", "condition", "otherwise")
    unary = _node(ast.Unary, "op", "operand")
    binary = _node(ast.Binary, "left", "op", "right")
    reduction = _node(ast.Reduction, "function", "body", "variable", "count")

    def comparison(self, meta: Meta, children: Sequence[Any]) -> ast.Comparison:
        return ast.Comparison(span=self.span(meta), ops=tuple(map(str, children[1::2])), operands=tuple(children[::2]))

    def call(self, meta: Meta, children: Sequence[Any]) -> ast.Call:
        function, *arguments = children
        return ast.Call(span=self.span(meta), function=function, arguments=tuple(arguments))

    def index(self, meta: Meta, children: Sequence[Any]) -> ast.Index:
        tensor, *indices = children
        return ast.Index(span=self.span(meta), tensor=tensor, indices=tuple(indices))

    def integer(self, meta: Meta, children: Sequence[Any]) -> ast.Number:
        return ast.Number(span=self.span(meta), value=_int(children[0]))

    def float(self, meta: Meta, children: Sequence[Any]) -> ast.Number:
        return ast.Number(span=self.span(meta), value=float(children[0]))

    def true(self, meta: Meta, children: Sequence[Any]) -> ast.Boolean:
        return ast.Boolean(span=self.span(meta), value=True)

    def false(self, meta: Meta, children: Sequence[Any]) -> ast.Boolean:
        return ast.Boolean(span=self.span(meta), value=False)

    name = _node(ast.Name, "name")
    quantity = name

    def reducer(self, meta: Meta, children: Sequence[Any]) -> str:
        return str(children[0])


def _int(token: Token) -> int:
    return int(token, 0)


def _setting_value(token: Token) -> int | str:
    return _int(token) if token.type == "INT" else str(token)
