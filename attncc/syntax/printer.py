"""Expressions and statements as canonical text: one blank around operators, parentheses only where they are needed."""

from __future__ import annotations

from collections.abc import Iterator

from . import ast

WIDTH = 100  # columns of code; comments may go beyond
_CONTINUATION = 8  # more blanks before the further lines of a statement

_BINARY = {
    "or": 1, "and": 2, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10,
}  # fmt: skip
_CONDITIONAL, _NOT, _COMPARISON, _PREFIX, ATOM = 0, 3, 4, 11, 12
CONDITION, COMPARED, FACTOR, DIVISOR = 1, 5, 10, 11  # how tight what stands there must bind


def expression(node: ast.Expr | ast.Wildcard) -> str:
    """The shortest text that reads as this expression again. Numbers stay as they were written."""
    match node:
        case ast.Binary() | ast.Comparison() | ast.Conditional():
            return " ".join(_parts(node))
        case ast.Unary():
            return f"{node.op}{' ' if node.op == 'not' else ''}{tight(node.operand, _precedence(node))}"
        case ast.Call():
            return f"{node.function.name}({_commas(node.arguments)})"
        case ast.Index():
            return f"{node.tensor.name}[{_commas(node.indices)}]"
        case ast.Reduction():
            return (
                f"{node.function}({expression(node.body)} for {node.variable.name} in range({expression(node.count)}))"
            )
        case _:
            return _leaf(node)


def _leaf(node: ast.Number | ast.Boolean | ast.Name | ast.Wildcard) -> str:
    match node:
        case ast.Number():
            return node.span.text
        case ast.Boolean():
            return "true" if node.value else "false"
        case ast.Name():
            return node.name
        case ast.Wildcard():
            return "_"


def lines(start: str, node: ast.Expr, indent: int) -> list[str]:
    """`start` and an expression behind it: on one line if it fits, else broken before the outermost operators."""
    whole = start + expression(node)
    if indent + len(whole) <= WIDTH or not isinstance(node, ast.Binary | ast.Comparison | ast.Conditional):
        return [whole]
    first, *rest = _parts(node)
    return [start + first, *(" " * _CONTINUATION + part for part in rest)]


def _parts(node: ast.Binary | ast.Comparison | ast.Conditional) -> Iterator[str]:
    """The first operand, then each operator with what follows it; a chain of equal precedence is one list."""
    match node:
        case ast.Conditional():
            yield f"{tight(node.then, 1)} if {tight(node.condition, 1)}"
            yield f"else {expression(node.otherwise)}"
        case ast.Comparison():
            first, *rest = (tight(operand, _COMPARISON + 1) for operand in node.operands)
            yield first
            yield from (f"{op} {operand}" for op, operand in zip(node.ops, rest, strict=True))
        case ast.Binary():
            level = _precedence(node)
            start: ast.Expr = node
            links: list[ast.Binary] = []
            while isinstance(start, ast.Binary) and _precedence(start) == level:
                links.append(start)
                start = start.left
            yield tight(start, level)
            yield from (f"{link.op} {tight(link.right, level + 1)}" for link in reversed(links))


def _precedence(node: ast.Expr) -> int:
    match node:
        case ast.Conditional():
            return _CONDITIONAL
        case ast.Binary():
            return _BINARY[node.op]
        case ast.Comparison():
            return _COMPARISON
        case ast.Unary():
            return _NOT if node.op == "not" else _PREFIX
        case _:
            return ATOM


def tight(node: ast.Expr, level: int) -> str:
    """In parentheses, if it binds less tightly than `level`."""
    text = expression(node)
    return text if _precedence(node) >= level else f"({text})"


def _commas(nodes: tuple[ast.Expr | ast.Wildcard, ...]) -> str:
    return ", ".join(map(expression, nodes))


# -------------------------------------------------------------------- statements


def statement(node: ast.Statement | ast.Setting, indent: int) -> tuple[str, list[str]]:
    """What stands before the column in which neighbours of its sort are aligned (often nothing), and the rest."""
    match node:
        case ast.Input():
            axes = f"[{_commas(node.axes)}]" if node.axes else ""
            properties = "".join(f" {item.name}" for item in node.properties)
            return f"input {node.name.name}:", [f"{node.dtype.name}{axes}{properties}"]
        case ast.Setting():
            choices = ", ".join(map(str, node.values))
            return node.knob.name, [f"= {choices if len(node.values) == 1 else '{' + choices + '}'}"]
        case ast.Table():
            return "", _table(node, indent)
        case ast.Sink():
            return "", [f"sink {node.input.name}"]
        case ast.Normalize():
            return "", [f"normalize {node.kind.name}"]
        case _:
            return "", lines(*_start(node), indent)


def _table(node: ast.Table, indent: int) -> list[str]:
    """As many entries on a line as fit."""
    rows = [f"const {node.name.name}: {node.type.name}[{expression(node.length)}] = ["]
    for place, value in enumerate(node.values):
        text = expression(value) + ("," if place < len(node.values) - 1 else "]")
        apart = "" if place == 0 else " "
        if place > 0 and indent + len(rows[-1] + apart + text) > WIDTH:
            rows.append(" " * _CONTINUATION + text)
        else:
            rows[-1] += apart + text
    return rows


def _start(node: ast.Const | ast.Let | ast.Keep | ast.Score | ast.Scale | ast.Dropout) -> tuple[str, ast.Expr]:
    match node:
        case ast.Const():
            return f"const {node.name.name}: {node.type.name} = ", node.value
        case ast.Let():
            return f"let {node.name.name} = ", node.value
        case ast.Keep():
            return "keep if ", node.condition
        case ast.Score():
            return "score = ", node.value
        case ast.Scale():
            return "scale ", node.value
        case ast.Dropout():
            return "dropout ", node.rate


# -------------------------------------------------------------------- items


def opening(item: ast.Item) -> str:
    """An item up to its `{` or `=`, with a blank at its end."""
    match item:
        case ast.Mask():
            return f"mask {item.name.name}({', '.join(parameter.name for parameter in item.parameters)}) "
        case ast.Function():
            return f"fn {item.name.name}({', '.join(parameter.name for parameter in item.parameters)}) "
        case ast.Variant():
            return f"variant {item.name.name} "
        case ast.Schedule():
            pass_name = f" {item.pass_name.name}" if item.pass_name else ""
            lengths = f"for {item.lengths.word.name} {item.lengths.range} " if item.lengths else ""
            return f"schedule {item.name.name} for {item.variant.name}{pass_name} on {item.target.name} {lengths}"


def import_line(node: ast.Import) -> str:
    return f"import {node.target.name}" if isinstance(node.target, ast.Name) else f'import "{node.target}"'
