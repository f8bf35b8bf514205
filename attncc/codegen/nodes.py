"""Expressions of CUDA C: what `expressions` makes of IR and `functions` prints. A node is shared by identity."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

from ..operators.record import Cuda
from ..source import Span

INT, LONG, FLOAT, BOOL = "int", "long long", "float", "bool"

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class Level(IntEnum):
    """What a value depends on, and so where it is computed: `Context`, `Row`, or for each element."""

    UNIFORM = 0  # the same for all pairs that a block works on
    ROW = 1  # q_idx, but not kv_idx
    ELEMENT = 2  # kv_idx or the score; in tile functions, the tile


class Precedence(IntEnum):
    """C's binding strength, for the operators that codegen prints."""

    TERNARY = 3
    BIT_OR = 6
    BIT_AND = 8
    EQUALITY = 9
    RELATION = 10
    SHIFT = 11
    SUM = 12
    PRODUCT = 13
    UNARY = 14
    PRIMARY = 16


@dataclass(frozen=True, eq=False)
class Node:
    """A C expression: `form` with {0}, {1}, … in place of the arguments, parenthesised if they bind less than needed.

    `bounds` are what an int is proven to lie in. `cost` is a rough count of instructions, arguments included: it says
    what is worth a place in `Context` or `Row`. `named` nodes always become a local or a field.
    """

    ctype: str
    form: str
    args: tuple[Node, ...] = ()
    precedence: Precedence = Precedence.PRIMARY
    needs: tuple[Precedence, ...] = ()  # for each argument
    level: Level = Level.UNIFORM
    cost: int = 0
    hint: str = "value"  # what to call it, if it gets a name
    note: str = ""  # a comment for the field that holds it
    named: bool = False
    include: str = ""  # the leaf file that the form needs
    bounds: tuple[int, int] = (INT64_MIN, INT64_MAX)
    reads_score: bool = False
    span: Span | None = field(default=None, repr=False)

    @property
    def is_leaf(self) -> bool:
        return not self.args

    def called(self, hint: str, span: Span | None = None, note: str = "", *, named: bool = True) -> Node:
        """The same value under a name."""
        return replace(self, hint=hint, named=named, span=span or self.span, note=note or self.note)


@dataclass(frozen=True, slots=True)
class Form:
    """How an operator prints: its text, how strongly it binds, what its arguments must, its own cost and a name."""

    text: str
    precedence: Precedence
    needs: tuple[Precedence, ...]
    cost: int = 1
    hint: str = "value"
    include: str = ""

    def node(self, ctype: str, *args: Node, bounds: tuple[int, int] = (INT64_MIN, INT64_MAX)) -> Node:
        needs = self.needs * len(args) if len(self.needs) < len(args) else self.needs
        return Node(
            ctype,
            self.text,
            args,
            self.precedence,
            needs,
            level=max((arg.level for arg in args), default=Level.UNIFORM),
            cost=self.cost + sum(arg.cost for arg in args),
            hint=self.hint,
            include=self.include,
            bounds=bounds,
            reads_score=any(arg.reads_score for arg in args),
        )


def leaf(ctype: str, text: str, level: Level = Level.UNIFORM, **more: object) -> Node:
    """A name, a field or a literal."""
    return Node(ctype, text, level=level, hint=text.rpartition(".")[2], **more)  # type: ignore[arg-type]


def infix(symbol: str, precedence: Precedence, need: Precedence, **more: object) -> Form:
    """A left-associative infix operator whose right side, and left side unless `need` says more, may be a like one."""
    right = max(need, Precedence(min(p for p in Precedence if p > precedence)))
    return Form(f"{{0}} {symbol} {{1}}", precedence, (need, right), **more)  # type: ignore[arg-type]


def call(function: str, count: int, **more: object) -> Form:
    """A function call. Arguments are full expressions."""
    arguments = ", ".join(f"{{{number}}}" for number in range(count))
    return Form(f"{function}({arguments})", Precedence.PRIMARY, (Precedence.TERNARY,) * count, **more)  # type: ignore[arg-type]


def prefix(symbol: str, **more: object) -> Form:
    """A unary operator."""
    return Form(f"{symbol}{{0}}", Precedence.UNARY, (Precedence.PRIMARY,), **more)  # type: ignore[arg-type]


# How strongly C's signs bind, and what their arguments must: more than C asks, where a reader would have to think.
_SIGNS = {
    **dict.fromkeys("+-", (Precedence.SUM, Precedence.SUM)),
    **dict.fromkeys("*/%", (Precedence.PRODUCT, Precedence.PRODUCT)),
    **dict.fromkeys(("<", "<=", ">", ">="), (Precedence.RELATION, Precedence.SUM)),
    **dict.fromkeys(("==", "!="), (Precedence.EQUALITY, Precedence.SUM)),
    "&": (Precedence.BIT_AND, Precedence.UNARY),
    **dict.fromkeys("|^", (Precedence.BIT_OR, Precedence.UNARY)),
}


def recorded(cuda: Cuda, arity: int, cost: int = 1) -> Form:
    """How an operator prints, by its record."""
    if cuda.text.isidentifier():
        return call(cuda.text, arity, cost=cost, hint=cuda.hint, include=cuda.include)
    if arity == 1:
        return prefix(cuda.text, cost=cost, hint=cuda.hint)
    return infix(cuda.text, *_SIGNS[cuda.text], cost=cost, hint=cuda.hint)


def cast(node: Node, ctype: str) -> Node:
    """`node` as another C type; itself if it has that type."""
    if node.ctype == ctype:
        return node
    if node.is_leaf and node.form.lstrip("-").isdigit() and ctype == LONG:
        return replace(node, ctype=LONG, form=node.form + "LL")
    form = Form(f"({ctype}){{0}}", Precedence.UNARY, (Precedence.UNARY,), 2 if ctype == FLOAT else 0, node.hint)
    return form.node(ctype, node, bounds=node.bounds)


def int_literal(value: int) -> Node:
    ctype = INT if INT32_MIN <= value <= INT32_MAX else LONG
    text = str(value) + ("LL" if ctype == LONG else "")
    if value in (INT32_MIN, INT64_MIN):  # their absolute values are no literals of the type
        text = f"({value + 1}{'LL' if ctype == LONG else ''} - 1)"
    precedence = Precedence.UNARY if value < 0 else Precedence.PRIMARY
    return Node(ctype, text, precedence=precedence, hint="constant", bounds=(value, value))


def fits_int(bounds: tuple[int, int]) -> bool:
    return bounds[0] >= INT32_MIN and bounds[1] <= INT32_MAX


SCALE = leaf(FLOAT, "ctx.scale")
# A field that takes the scale before descales of 8-bit operands join it.
CALL_SCALE = Form("{0}", Precedence.PRIMARY, (Precedence.TERNARY,), cost=0).node(FLOAT, SCALE).called("call_scale")
