"""The syntax tree of a `.attn` file: one frozen dataclass for each grammar rule, nothing resolved."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..source import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Every node knows where it stands; spans don't take part in equality."""

    span: Span = field(compare=False, repr=False)


# -------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Node):
    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean(Node):
    value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Node):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Node):
    op: str  # "-" | "+" | "~" | "not"
    operand: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Node):
    op: str  # + - * / // % & | ^ << >> and or
    left: Expr
    right: Expr


JOINS = ("and", "or")


def chain(node: Binary) -> list[Expr]:
    """The operands of `a and b and c`, in order. A chain of one operator leans to the left."""
    operands: list[Expr] = []
    first: Expr = node
    while isinstance(first, Binary) and first.op == node.op:
        operands.append(first.right)
        first = first.left
    return [first, *reversed(operands)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Node):
    """`a < b <= c`: len(operands) == len(ops) + 1."""

    ops: tuple[str, ...]
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditional(Node):
    """`then if condition else otherwise`."""

    then: Expr
    condition: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """A built-in function, or a mask or function of a file."""

    function: Name
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Node):
    tensor: Name
    indices: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction(Node):
    """`any(body for variable in range(count))`, likewise `all` and `sum`."""

    function: str
    body: Expr
    variable: Name
    count: Expr


Expr = Number | Boolean | Name | Unary | Binary | Comparison | Conditional | Call | Index | Reduction

# -------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True, kw_only=True)
class Const(Node):
    name: Name
    type: Name
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Node):
    """`const name: type[length] = [value, ...]`."""

    name: Name
    type: Name
    length: Expr
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wildcard(Node):
    """The axis `_`: any length, indexed by anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input(Node):
    """`input name: dtype[axes] properties`. An axis is a tag or const (Name), a const expression, or `_`."""

    name: Name
    dtype: Name
    axes: tuple[Expr | Wildcard, ...]
    properties: tuple[Name, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Let(Node):
    name: Name
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep(Node):
    condition: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Node):
    """`score = value`."""

    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Node):
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Node):
    input: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalize(Node):
    kind: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout(Node):
    rate: Expr


Statement = Const | Table | Input | Let | Keep | Score | Scale | Sink | Normalize | Dropout

# -------------------------------------------------------------------- items


@dataclass(frozen=True, slots=True, kw_only=True)
class Import(Node):
    """`import masks` (of the shipped library: Name) or `import "mine.attn"` (relative to this file: str)."""

    target: Name | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask(Node):
    """`mask name(parameters) = expression`, or a body of `let` and `keep if` lines."""

    name: Name
    parameters: tuple[Name, ...]
    body: Expr | tuple[Let | Keep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function(Node):
    """`fn name(parameters) = expression`."""

    name: Name
    parameters: tuple[Name, ...]
    body: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant(Node):
    name: Name
    statements: tuple[Statement, ...]
    comment: str = ""  # the comment lines that stand directly above it: its documentation


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Node):
    """`knob = value`; several values are the candidates `{a, b}`. A value is an int or a word (`auto`)."""

    knob: Name
    values: tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(Node):
    """`for lengths 1024..8192`, of a schedule. `word`: what stands for `lengths`; `last` None: `1024..`."""

    word: Name
    first: int
    last: int | None

    @property
    def range(self) -> str:
        return f"{self.first}..{'' if self.last is None else self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Node):
    """`schedule name for variant [pass] on target [for lengths 1024..8192] { settings }`; pass_name None is the forward
    pass."""

    name: Name
    variant: Name
    pass_name: Name | None
    target: Name
    lengths: Lengths | None
    settings: tuple[Setting, ...]


Item = Mask | Function | Variant | Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Module(Node):
    version: int
    imports: tuple[Import, ...]
    items: tuple[Item, ...]
